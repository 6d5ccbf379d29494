"""Reporting: once, and what is not known is left to a person."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.cloud import firestore

from exactly_once.identity import RunContext, idempotency_key
from tests.conftest import Receiver, Step

ORDERS = {"A-1": ("EUR", 1250), "A-2": ("KWD", 7323), "A-3": ("EUR", 5), "A-4": ("JPY", 76)}
IDS = {"orders": list(ORDERS)}


@pytest.fixture
def publish(step: Callable[..., Step], receiver: Receiver, database: firestore.Client) -> Step:
    publish = step("publish_report", WEBHOOK_URL=receiver.url + "/hook")
    for order, (currency, amount) in ORDERS.items():
        database.document(f"orders/{order}").create({"currency": currency, "amount": amount})
    return publish


def test_posts_the_totals_of_each_currency(publish: Step, receiver: Receiver, run: RunContext) -> None:
    answer = publish(run, IDS)
    report = {
        "run_id": run.run_id,
        "slot": "2026-01-16T02:00:00+00:00",
        "orders": 4,
        "totals": [
            {"currency": "EUR", "orders": 2, "amount": 1255},
            {"currency": "JPY", "orders": 1, "amount": 76},
            {"currency": "KWD", "orders": 1, "amount": 7323},
        ],
    }
    assert (answer.status, answer.result) == (200, report)
    assert receiver.calls == [("/hook", idempotency_key(run.run_id, "publish_report"), report)]
    assert publish(run, IDS).body["replayed"]
    assert len(receiver.calls) == 1


def test_a_day_without_orders_is_reported(publish: Step, receiver: Receiver, run: RunContext) -> None:
    assert publish(run, {"orders": []}).result["totals"] == []
    assert len(receiver.calls) == 1


@pytest.mark.parametrize("trouble", [None, (500, b""), (503, b""), (408, b""), (409, b"")])
def test_an_unknown_outcome_is_held(
    publish: Step, receiver: Receiver, run: RunContext, trouble: tuple[int, bytes] | None
) -> None:
    receiver.answers = [trouble, (200, b"")]
    for _ in range(2):
        answer = publish(run, IDS)
        assert (answer.status, answer.error) == (422, "held")
    assert len(receiver.calls) == 1


def test_what_was_surely_not_taken_is_tried_again(publish: Step, receiver: Receiver, run: RunContext) -> None:
    receiver.answers = [(429, b""), (204, b"")]
    assert publish(run, IDS).error == "retry"
    assert publish(run, IDS).status == 200
    receiver.close()


def test_nobody_listening_is_surely_not_taken(publish: Step, receiver: Receiver, run: RunContext) -> None:
    receiver.close()
    assert publish(run, IDS).error == "retry"


def test_a_refusal_is_final(publish: Step, receiver: Receiver, run: RunContext) -> None:
    receiver.answers = [(410, b"gone")]
    assert publish(run, IDS).error == "failed"


@pytest.mark.parametrize(
    "payload", [None, {}, {"orders": "A-1"}, {"orders": ["A-1", "A-9"]}, {"orders": ["A-1"] * 501}]
)
def test_an_input_that_is_no_report_is_refused_before_the_call(
    publish: Step, receiver: Receiver, run: RunContext, payload: object
) -> None:
    answer = publish(run, payload)
    assert (answer.status, answer.error) == (422, "failed")
    assert receiver.calls == []
