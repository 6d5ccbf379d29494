"""One job a run that succeeds, whatever happens to its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.api_core.exceptions import ServiceUnavailable

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


def test_a_job_is_started_once(made: Step, sink: Standing, run: RunContext) -> None:
    first, again = made(run, {"n": 1}), made(run, {"n": 1})
    assert first.status == 200
    assert (again.result, again.body["replayed"]) == (first.result, True)
    (row,) = sink.effects()
    assert row["key"] == f"test-project.{first.result['job']}"
    assert row["body"]["query"]["writeDisposition"] == "WRITE_APPEND"


@pytest.mark.parametrize("attempt", [1, 2])
def test_the_job_of_a_dead_attempt_is_found(made: Step, sink: Standing, run: RunContext, attempt: int) -> None:
    body = made.module.main.__wrapped__
    assert body(Run(run, STEP, None, 1), {"n": 1}) == body(Run(run, STEP, None, attempt), {"n": 1})
    assert made(run, {"n": 1}).status == 200
    assert len(sink.effects()) == 1


class Job:
    """A job that has ended, or whose end cannot be seen."""

    def __init__(self, job_id: str, reason: str | None, state: str = "DONE") -> None:
        self.job_id = job_id
        self.state = state
        self.error_result = {"reason": reason, "message": f"the job says {reason}"} if reason else None

    def result(self, **_: object) -> None:
        if self.error_result or self.state != "DONE":
            raise ServiceUnavailable("no result")

    def reload(self, **_: object) -> None:
        """It is as it is."""


@pytest.mark.parametrize(
    ("ends", "status", "started"),
    [
        ([("backendError", "DONE"), (None, "DONE")], 200, 2),  # failed: it wrote nothing, the next id is tried
        ([("invalidQuery", "DONE")], 422, 1),
        ([("backendError", "DONE")] * 9, 422, 5),
        ([(None, "RUNNING")], 500, 1),  # not known: no other job may start
    ],
)
def test_another_job_is_started_only_after_one_that_surely_failed(
    made: Step,
    monkeypatch: pytest.MonkeyPatch,
    run: RunContext,
    ends: list[tuple[str | None, str]],
    status: int,
    started: int,
) -> None:
    begun: list[str] = []

    def begin(job_id: str, *_: object) -> Job:
        begun.append(job_id)
        return Job(job_id, *ends[len(begun) - 1])

    monkeypatch.setattr(made.module, "begin", begin)
    monkeypatch.setattr(made.module, "find", lambda _: None)
    answer = made(run, {})
    assert answer.status == status
    assert len(set(begun)) == len(begun) == started
    if status == 200:
        assert answer.result == {"job": begun[-1]}


def test_a_partition_is_the_slots(made: Step, sink: Standing, monkeypatch: pytest.MonkeyPatch, run: RunContext) -> None:
    monkeypatch.setattr(made.module, "PARTITION", "%Y%m%d")
    monkeypatch.setattr(made.module, "WRITE", "WRITE_TRUNCATE")
    assert made(run, {}).status == 200
    query = sink.effects()[0]["body"]["query"]
    assert query["destinationTable"]["tableId"] == f"rows${run.slot:%Y%m%d}"
    assert query["writeDisposition"] == "WRITE_TRUNCATE"


def test_an_empty_setting_is_said(step: Callable[..., Step], run: RunContext) -> None:
    answer = step(STEP, **{f"{STEP.upper()}_TABLE": ""})(run)
    assert (answer.status, answer.error) == (500, "retry")
    assert f"{STEP.upper()}_TABLE is empty" in answer.body["error"]["message"]
