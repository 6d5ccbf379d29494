"""Charging: one payment an order, whatever the API and the connection do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.cloud import firestore

from exactly_once.identity import RunContext, idempotency_key
from tests.conftest import Receiver, Step

ORDER = {"status": "reserved", "amount": 1250, "currency": "EUR", "customer": "Zoë Çelik"}
PAID = (200, b'{"id": "pay-7"}')


@pytest.fixture
def charge(step: Callable[..., Step], receiver: Receiver, database: firestore.Client) -> Step:
    charge = step("charge_orders", PAYMENT_URL=receiver.url)
    database.document("orders/A-1").create(ORDER)
    return charge


def test_charges_with_the_key_of_run_and_order(charge: Step, receiver: Receiver, run: RunContext) -> None:
    answer = charge(run, {"order": "A-1"}, item="A-1")
    assert (answer.status, answer.result) == (200, {"payment": "pay-1"})
    key = idempotency_key(run.run_id, "charge_orders", "A-1")
    body = {"order": "A-1", "amount": 1250, "currency": "EUR", "customer": "Zoë Çelik"}
    assert receiver.calls == [("/charges", key, body)]


def test_a_repeat_charges_nothing(charge: Step, receiver: Receiver, run: RunContext) -> None:
    first = charge(run, {"order": "A-1"}, item="A-1")
    again = charge(run, {"order": "A-1"}, item="A-1")
    assert (again.result, again.body["replayed"]) == (first.result, True)
    assert len(receiver.calls) == 1


@pytest.mark.parametrize(
    "trouble",
    [None, (500, b""), (502, b"no"), (503, b""), (408, b""), (409, b""), (429, b""), (200, b"no JSON"), (200, b"{}")],
)
def test_what_may_pass_is_tried_again_with_the_same_key(
    charge: Step, receiver: Receiver, run: RunContext, trouble: tuple[int, bytes] | None
) -> None:
    receiver.answers = [trouble, PAID]
    assert charge(run, {"order": "A-1"}, item="A-1").status == 500
    answer = charge(run, {"order": "A-1"}, item="A-1")
    assert (answer.status, answer.result) == (200, {"payment": "pay-7"})
    assert len(receiver.calls) == 2
    assert receiver.calls[0] == receiver.calls[1]


@pytest.mark.parametrize("status", [301, 400, 401, 402, 403, 404, 422])
def test_a_refusal_is_final(charge: Step, receiver: Receiver, run: RunContext, status: int) -> None:
    receiver.answers = [(status, b"card declined"), PAID]
    for _ in range(2):
        answer = charge(run, {"order": "A-1"}, item="A-1")
        assert (answer.status, answer.error) == (422, "failed")
        assert f"{status} card declined" in answer.body["error"]["message"]
    assert len(receiver.calls) == 1


def test_nobody_listening_is_surely_not_charged(charge: Step, receiver: Receiver, run: RunContext) -> None:
    receiver.close()
    answer = charge(run, {"order": "A-1"}, item="A-1")
    assert (answer.status, answer.error) == (500, "retry")


@pytest.mark.parametrize("payload", [None, {}, {"order": 7}, {"order": ""}, {"order": "A-2"}, {"order": "A-3"}])
def test_only_a_reserved_order_is_charged(
    charge: Step, receiver: Receiver, run: RunContext, database: firestore.Client, payload: object
) -> None:
    database.document("orders/A-3").create({**ORDER, "status": "short"})
    answer = charge(run, payload, item="A")
    assert (answer.status, answer.error) == (422, "failed")
    assert receiver.calls == []
