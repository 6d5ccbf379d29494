"""One object a run, with the precondition that nothing is there."""

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


def test_an_object_is_written_once(made: Step, sink: Standing, run: RunContext) -> None:
    first, again = made(run, {"n": 1}), made(run, {"n": 1})
    assert first.status == 200
    assert (again.result, again.body["replayed"]) == (first.result, True)
    assert [row["path"] for row in sink.effects()] == [f"/laptop/{first.result['object']}"]


def test_an_object_that_a_dead_attempt_wrote_is_taken_as_done(made: Step, sink: Standing, run: RunContext) -> None:
    dead = made.module.main.__wrapped__(Run(run, STEP, None, 1), {"n": 1})
    answer = made(run, {"n": 1})
    assert (answer.status, answer.result) == (200, dead)
    assert len(sink.effects()) == 1


def test_another_content_under_the_name_is_not_overwritten(made: Step, sink: Standing, run: RunContext) -> None:
    made.module.main.__wrapped__(Run(run, STEP, None, 1), {"n": 2})
    answer = made(run, {"n": 1})
    assert (answer.status, answer.error) == (422, "failed")
    assert "another content" in answer.body["error"]["message"]
    assert len(sink.effects()) == 1


def test_an_empty_setting_is_said(step: Callable[..., Step], run: RunContext) -> None:
    answer = step(STEP, **{f"{STEP.upper()}_BUCKET": ""})(run)
    assert (answer.status, answer.error) == (500, "retry")
    assert f"{STEP.upper()}_BUCKET is empty" in answer.body["error"]["message"]
