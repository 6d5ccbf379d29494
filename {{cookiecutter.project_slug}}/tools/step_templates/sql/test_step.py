"""The effect and the row of the key are one SQL transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from exactly_once import Run
from exactly_once.identity import RunContext
from tests.conftest import Step
from tools.emulators.sinks.standing import Standing, standing
from tools.settings import Settings

STEP = Path(__file__).stem.removeprefix("test_")
"""The file is named after the step."""


@pytest.fixture(scope="module")
def sink(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """A PostgreSQL of this machine."""
    with standing(tmp_path_factory.mktemp(STEP), STEP, settings.steps[STEP].entries["SINKS"].value) as sink:
        yield sink


@pytest.fixture
def made(step: Callable[..., Step], sink: Standing, monkeypatch: pytest.MonkeyPatch) -> Step:
    environment = {"STEP": STEP, "GOOGLE_CLOUD_PROJECT": "test-project", **sink.environment}
    for name, value in environment.items():  # for what a test calls past the endpoint
        monkeypatch.setenv(name, value)
    return step(STEP, **environment)


@pytest.fixture
def rows(made: Step, sink: Standing) -> Iterator[Callable[[], list[Any]]]:
    """What the step's effect has written, in order; empty at first."""
    with made.module.connect() as connection:
        connection.execute("TRUNCATE step_events, exactly_once_keys")
        yield lambda: [row[0] for row in connection.execute("SELECT input FROM step_events ORDER BY id").fetchall()]


def test_a_repeat_inserts_nothing(made: Step, run: RunContext, rows: Callable[[], list[Any]]) -> None:
    first, again = made(run, {"n": 1}), made(run, {"n": 1})
    assert first.status == 200
    assert (again.result, again.body["replayed"]) == (first.result, True)
    assert rows() == [{"n": 1}]


def test_a_lost_record_gives_the_stored_result(made: Step, run: RunContext, rows: Callable[[], list[Any]]) -> None:
    dead = made.module.main.__wrapped__(Run(run, STEP, None, 1), {"n": 1})
    assert made(run, {"n": 1}).result == dead
    assert rows() == [{"n": 1}]


def test_an_effect_that_fails_leaves_nothing(
    made: Step, run: RunContext, rows: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made.module.effect

    def half(connection: psycopg.Connection[Any], run: Run, payload: Any) -> Any:
        whole(connection, run, payload)
        raise RuntimeError("in the middle")

    monkeypatch.setattr(made.module, "effect", half)
    assert made(run, {"n": 1}).status == 500
    assert rows() == []
    monkeypatch.setattr(made.module, "effect", whole)
    assert made(run, {"n": 1}).status == 200
    assert rows() == [{"n": 1}]


def test_no_database_is_surely_not_done(step: Callable[..., Step], run: RunContext) -> None:
    answer = step(STEP, **{f"{STEP.upper()}_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"})(run)
    assert (answer.status, answer.error) == (500, "retry")


def test_an_empty_setting_is_said(step: Callable[..., Step], run: RunContext) -> None:
    answer = step(STEP, **{f"{STEP.upper()}_DATABASE_URL": ""})(run)
    assert (answer.status, answer.error) == (500, "retry")
    assert f"{STEP.upper()}_DATABASE_URL is empty" in answer.body["error"]["message"]
