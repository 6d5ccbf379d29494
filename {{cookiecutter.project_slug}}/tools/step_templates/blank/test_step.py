"""The step answers, and a repeat gets the same answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from exactly_once.identity import RunContext
from tests.conftest import Step

STEP = Path(__file__).stem.removeprefix("test_")
"""The file is named after the step."""


def test_a_repeat_gets_the_recorded_result(step: Callable[..., Step], run: RunContext) -> None:
    made = step(STEP)
    first, again = made(run, {"n": 1}), made(run, {"n": 1})
    assert (first.status, first.result["input"]) == (200, {"n": 1})
    assert (again.result, again.body["replayed"]) == (first.result, True)


def test_another_input_for_the_same_run_is_refused(step: Callable[..., Step], run: RunContext) -> None:
    made = step(STEP)
    assert made(run, {"n": 1}).status == 200
    assert made(run, {"n": 2}).error == "other_input"
