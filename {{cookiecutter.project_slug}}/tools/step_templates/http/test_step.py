"""One request with the key, whatever the API and the connection do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from exactly_once.identity import RunContext
from tests.conftest import Receiver, Step

STEP = Path(__file__).stem.removeprefix("test_")
"""The file is named after the step."""


@pytest.fixture
def made(step: Callable[..., Step], receiver: Receiver) -> Step:
    return step(STEP, **{f"{STEP.upper()}_URL": receiver.url})


def test_a_repeat_posts_nothing(made: Step, receiver: Receiver, run: RunContext) -> None:
    first, again = made(run, {"n": 1}), made(run, {"n": 1})
    assert (first.status, first.result) == (200, {"status": 200, "answer": {"id": "pay-1"}})
    assert (again.result, again.body["replayed"]) == (first.result, True)
    assert len(receiver.calls) == 1


@pytest.mark.parametrize(
    "trouble", [None, (500, b""), (502, b""), (503, b""), (408, b""), (409, b""), (425, b""), (429, b"")]
)
def test_what_may_pass_is_tried_again_with_the_same_key_and_body(
    made: Step, receiver: Receiver, run: RunContext, trouble: tuple[int, bytes] | None
) -> None:
    receiver.answers = [trouble, (200, b"thanks")]
    assert made(run, {"n": 1}).status == 500
    answer = made(run, {"n": 1})
    assert (answer.status, answer.result) == (200, {"status": 200, "answer": None})
    assert len(receiver.calls) == 2
    assert receiver.calls[0] == receiver.calls[1]


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422])
def test_a_refusal_is_final(made: Step, receiver: Receiver, run: RunContext, status: int) -> None:
    receiver.answers = [(status, b"no"), (200, b"{}")]
    assert [made(run, {}).status, made(run, {}).status] == [422, 422]
    assert len(receiver.calls) == 1


def test_nobody_listening_is_surely_not_done(made: Step, receiver: Receiver, run: RunContext) -> None:
    receiver.close()
    answer = made(run, {})
    assert (answer.status, answer.error) == (500, "retry")


def test_an_empty_setting_is_said(step: Callable[..., Step], run: RunContext) -> None:
    answer = step(STEP, **{f"{STEP.upper()}_URL": ""})(run)
    assert (answer.status, answer.error) == (500, "retry")
    assert f"{STEP.upper()}_URL is empty" in answer.body["error"]["message"]
