"""A message with the key, by which a subscriber knows its repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exactly_once import Run
from exactly_once.identity import RunContext
from tests.conftest import Step
from tools.emulators.sinks.standing import Standing, standing
from tools.settings import Settings

STEP = Path(__file__).stem.removeprefix("test_")
"""The file is named after the step."""


@pytest.fixture
def sink(settings: Settings, tmp_path: Path) -> Iterator[Standing]:
    """The stand-in that the step writes to."""
    with standing(tmp_path, STEP, settings.steps[STEP].entries["SINKS"].value) as sink:
        yield sink


@pytest.fixture
def made(step: Callable[..., Step], sink: Standing, monkeypatch: pytest.MonkeyPatch) -> Step:
    environment = {"STEP": STEP, "GOOGLE_CLOUD_PROJECT": "test-project", **sink.environment}
    for name, value in environment.items():  # for what a test calls past the endpoint
        monkeypatch.setenv(name, value)
    return step(STEP, **environment)


def test_a_repeat_publishes_nothing(made: Step, sink: Standing, run: RunContext) -> None:
    first, again = made(run, {"n": 1}), made(run, {"n": 1})
    assert first.status == 200
    assert (again.result, again.body["replayed"]) == (first.result, True)
    assert len(sink.ledger.rows()) == 1


def test_a_lost_record_gives_a_second_message_of_the_same_key_and_content(
    made: Step, sink: Standing, run: RunContext
) -> None:
    this = Run(run, STEP, None, 1)
    made.module.main.__wrapped__(this, {"n": 1})
    assert made(run, {"n": 1}).status == 200
    assert [(row["key"], row["outcome"]) for row in sink.ledger.rows()] == [
        (this.idempotency_key, "first"),
        (this.idempotency_key, "replayed"),
    ]


def test_an_empty_setting_is_said(step: Callable[..., Step], run: RunContext) -> None:
    answer = step(STEP, **{f"{STEP.upper()}_TOPIC": ""})(run)
    assert (answer.status, answer.error) == (500, "retry")
    assert f"{STEP.upper()}_TOPIC is empty" in answer.body["error"]["message"]
