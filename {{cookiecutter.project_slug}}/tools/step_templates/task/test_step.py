"""One task a run, by its name."""

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
    environment = {
        "STEP": STEP,
        "GOOGLE_CLOUD_PROJECT": "test-project",
        **sink.environment,
        f"{STEP.upper()}_URL": "https://example.com/work",
    }
    for name, value in environment.items():  # for what a test calls past the endpoint
        monkeypatch.setenv(name, value)
    return step(STEP, **environment)


def test_a_task_is_made_once(made: Step, sink: Standing, run: RunContext) -> None:
    first, again = made(run, {"n": 1}), made(run, {"n": 1})
    assert first.status == 200
    assert (again.result, again.body["replayed"]) == (first.result, True)
    assert [row["key"] for row in sink.effects()] == [first.result["task"]]


def test_the_task_of_a_dead_attempt_is_taken_as_done(made: Step, sink: Standing, run: RunContext) -> None:
    dead = made.module.main.__wrapped__(Run(run, STEP, None, 1), {"n": 1})
    assert made(run, {"n": 1}).result == dead
    assert len(sink.effects()) == 1


def test_the_task_carries_key_and_token(made: Step, monkeypatch: pytest.MonkeyPatch, run: RunContext) -> None:
    monkeypatch.setenv(f"{STEP.upper()}_ACCOUNT", "worker@example.com")
    this = Run(run, STEP, None, 1)
    request = made.module.task("queue/tasks/1", this, {"n": 1}).http_request
    assert request.headers["Idempotency-Key"] == this.idempotency_key
    assert (request.oidc_token.service_account_email, request.oidc_token.audience) == (
        "worker@example.com",
        request.url,
    )


def test_an_empty_setting_is_said(step: Callable[..., Step], run: RunContext) -> None:
    answer = step(STEP, **{f"{STEP.upper()}_QUEUE": ""})(run)
    assert (answer.status, answer.error) == (500, "retry")
    assert f"{STEP.upper()}_QUEUE is empty" in answer.body["error"]["message"]
