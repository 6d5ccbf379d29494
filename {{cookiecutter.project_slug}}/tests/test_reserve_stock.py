"""Reserving: what is open at the slot, first come first served, in one piece."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from google.cloud import firestore

from exactly_once.identity import RunContext, manual_run, slot_run
from tests.conftest import SLOT, Step


@pytest.fixture
def reserve(step: Callable[..., Step]) -> Step:
    return step("reserve_stock")


def place(database: firestore.Client, order: str, minutes: int, quantity: int = 1, sku: str = "MUG") -> None:
    """An open order, placed `minutes` before the slot."""
    placed = SLOT - timedelta(minutes=minutes)
    fields = {"sku": sku, "quantity": quantity, "status": "open", "placed_at": placed, "open_since": placed}
    database.document(f"orders/{order}").create(fields)


def fields(database: firestore.Client, path: str) -> dict[str, Any]:
    return database.document(path).get().to_dict() or {}


def test_takes_what_was_open_before_the_slot(database: firestore.Client, reserve: Step, run: RunContext) -> None:
    database.document("stock/MUG").create({"quantity": 10})
    place(database, "second", 5, quantity=3)
    place(database, "first", 9, quantity=2)
    place(database, "at the slot", 0)
    place(database, "later", -1)
    answer = reserve(run)
    assert (answer.status, answer.result) == (200, {"orders": ["first", "second"], "short": []})
    assert fields(database, "stock/MUG") == {"quantity": 5}
    first = fields(database, "orders/first")
    assert first["status"] == "reserved"
    assert first["run_id"] == run.run_id
    assert "open_since" not in first
    assert {fields(database, f"orders/{order}")["status"] for order in ("at the slot", "later")} == {"open"}


def test_first_come_first_served(database: firestore.Client, reserve: Step, run: RunContext) -> None:
    database.document("stock/MUG").create({"quantity": 5})
    place(database, "a", 9, quantity=4)
    place(database, "b", 8, quantity=2)
    place(database, "c", 7, quantity=1)
    place(database, "unheard of", 6, sku="YACHT")
    assert reserve(run).result == {"orders": ["a", "c"], "short": ["b", "unheard of"]}
    assert fields(database, "stock/MUG") == {"quantity": 0}
    assert fields(database, "orders/b")["status"] == "short"


def test_a_repeat_changes_nothing(database: firestore.Client, reserve: Step, run: RunContext) -> None:
    database.document("stock/MUG").create({"quantity": 10})
    place(database, "a", 9, quantity=4)
    first = reserve(run)
    place(database, "b", 8)  # came in late; an earlier answer must not change
    again = reserve(run)
    assert again.result == first.result
    assert again.body["replayed"]
    assert fields(database, "stock/MUG") == {"quantity": 6}


def test_two_runs_share_no_order(database: firestore.Client, reserve: Step, run: RunContext, settings: Any) -> None:
    database.document("stock/MUG").create({"quantity": 10})
    place(database, "a", 9)
    place(database, "b", -30)
    tomorrow = slot_run(settings.pipeline, settings.scope, settings.job, SLOT + timedelta(days=1), settings.time_zone)
    assert reserve(run).result["orders"] == ["a"]
    assert reserve(tomorrow).result["orders"] == ["b"]
    assert fields(database, "stock/MUG") == {"quantity": 8}


def test_a_manual_run_takes_what_is_open(database: firestore.Client, reserve: Step, settings: Any) -> None:
    database.document("stock/MUG").create({"quantity": 10})
    place(database, "a", -30)
    by_hand = manual_run(settings.pipeline, settings.scope, "by hand")
    assert reserve(by_hand).result["orders"] == ["a"]


def test_nothing_open(reserve: Step, run: RunContext) -> None:
    assert reserve(run).result == {"orders": [], "short": []}


def test_as_many_orders_as_it_says_fit_into_one_transaction(
    database: firestore.Client, reserve: Step, run: RunContext
) -> None:
    batch = database.batch()
    count = reserve.module.ORDERS_AT_ONCE
    for number in range(count):
        placed = SLOT - timedelta(seconds=count - number)
        batch.create(
            database.document(f"orders/order-{number:03}"),
            {"sku": f"SKU-{number % 50}", "quantity": 1, "status": "open", "placed_at": placed, "open_since": placed},
        )
    batch.commit()
    for number in range(50):
        database.document(f"stock/SKU-{number}").create({"quantity": 100})
    answer = reserve(run)
    assert answer.status == 200
    assert answer.result["orders"] == [f"order-{number:03}" for number in range(count)]
    assert fields(database, "stock/SKU-0") == {"quantity": 100 - count // 50}


def test_too_many_orders_are_refused_and_nothing_changes(
    database: firestore.Client, reserve: Step, run: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve.module, "ORDERS_AT_ONCE", 2)
    database.document("stock/MUG").create({"quantity": 10})
    for number in range(3):
        place(database, f"order-{number}", 9 - number)
    answer = reserve(run)
    assert (answer.status, answer.error) == (422, "failed")
    assert "more than 2 orders" in answer.body["error"]["message"]
    assert fields(database, "stock/MUG") == {"quantity": 10}
    assert fields(database, "orders/order-0")["status"] == "open"
