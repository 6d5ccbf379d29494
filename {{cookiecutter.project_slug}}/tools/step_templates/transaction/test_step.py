"""One transaction for the writes and the record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from google.cloud import firestore

from exactly_once.identity import RunContext
from tests.conftest import Step

STEP = Path(__file__).stem.removeprefix("test_")
"""The file is named after the step."""


def test_a_repeat_writes_nothing(step: Callable[..., Step], database: firestore.Client, run: RunContext) -> None:
    made = step(STEP)
    first, again = made(run, {"n": 1}), made(run, {"n": 1})
    assert (first.status, first.result) == (200, {"count": 1})
    assert (again.result, again.body["replayed"]) == ({"count": 1}, True)
    assert database.document(f"{STEP}/total").get().get("count") == 1
    assert len(list(database.collection(STEP).stream())) == 2


def test_items_are_counted_one_by_one(step: Callable[..., Step], database: firestore.Client, run: RunContext) -> None:
    made = step(STEP)
    assert [made(run, {}, item=item).result["count"] for item in ("a", "b", "a")] == [1, 2, 1]
    assert database.document(f"{STEP}/total").get().get("count") == 2
