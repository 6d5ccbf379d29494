"""A record and a key for each item."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from google.cloud import firestore

from exactly_once.identity import RunContext
from tests.conftest import Step

STEP = Path(__file__).stem.removeprefix("test_")
"""The file is named after the step."""


def test_items_that_are_done_are_skipped(
    step: Callable[..., Step], database: firestore.Client, run: RunContext
) -> None:
    made = step(STEP)
    assert made(run, {"items": ["a", "b"]}).result == [{"item": "a"}, {"item": "b"}]
    answer = made(run, {"items": ["b", {"item": "c", "input": 7}]})
    assert (answer.status, answer.result) == (200, [{"item": "b"}, {"item": "c"}])
    written = list(database.collection(STEP).stream())
    assert sorted((document.get("item"), document.get("input")) for document in written) == [
        ("a", None),
        ("b", None),
        ("c", 7),
    ]


def test_two_items_of_one_name_are_refused(step: Callable[..., Step], run: RunContext) -> None:
    assert step(STEP)(run, {"items": ["a", "a"]}).status in (400, 422)
