"""The run book of a generated project: its commands, read from the page, mend what it says they mend."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from exactly_once.errors import Permanent
from exactly_once.log import Log
from tests.operate.office import Office, Result
from tools.operate.naming import short
from tools.operate.place import Place

README = Path(__file__).parents[2] / "{{cookiecutter.project_slug}}" / "README.md"
NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
TODAY = 15


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "now", lambda self: NOW)


def chapters() -> dict[str, list[list[str]]]:
    """Title -> its commands as words, without ./pipeline."""
    book = README.read_text().split("\n## Run book\n")[1].split("\n## ")[0]
    found: dict[str, list[list[str]]] = {}
    for part in book.split("\n### ")[1:]:
        commands = re.findall(r"^    \./pipeline (.*)$", part, re.M)
        found[part.split("\n")[0]] = [shlex.split(command, comments=True) for command in commands]
    return found


def follow(office: Office, title: str, **names: str) -> list[Result]:
    """Run a chapter's commands in turn, with the placeholders' values."""
    done = []
    for words in chapters()[title]:
        words = [names.get(word, word) for word in words]
        asks = words[0] not in ("runs", "show")
        done.append(office.op(*words, *(["--yes"] if asks else [])))
    return done


def fails(error: Exception) -> Callable[[Any, Any], Any]:
    def body(run: Any, payload: Any) -> Any:
        raise error

    return body


def ends(office: Office, run_id: str) -> str:
    return office.ended(office.record(run_id)["execution"])


def test_an_attempt_of_the_scheduler_failed(office: Office) -> None:
    for day in (9, 10, 11, 12, 14, TODAY):
        office.deliver(office.slot(day))
    found, filled = follow(office, "An attempt of the Scheduler failed")
    assert (found.code, filled.code) == (3, 0) and "2026-01-13T02:00:00Z" in found.out
    assert ends(office, office.slot(13).run_id) == "SUCCEEDED"


def test_a_run_failed(office: Office) -> None:
    """An outage that outlasted every retry of one run, and of another."""
    office.bodies["charge"] = fails(ConnectionError("down"))
    runs = [office.deliver(office.slot(day)) for day in (14, TODAY)]
    office.bodies.clear()
    listed, shown, resumed, others = follow(office, "A run failed", RUN=short(runs[0]))
    assert all(short(run_id) in listed.out for run_id in runs) and "ConnectionError: down" in shown.out
    assert resumed.code == 0 and others.code == 0, others.err
    assert short(runs[1]) in others.out and [ends(office, run_id) for run_id in runs] == ["SUCCEEDED"] * 2
    assert office.ran.count("take") == 2 and office.ran.count("charge x") == 2


def test_a_step_failed_for_good(office: Office) -> None:
    office.bodies["charge"] = lambda run, payload: (
        fails(Permanent("no account"))(run, payload) if run.item == "y" else {}
    )
    run_id = office.deliver(office.slot(TODAY))
    office.bodies.clear()
    done = follow(office, "A step failed for good", RUN=short(run_id), STEP="charge", ITEM="y")
    assert [result.code for result in done] == [0, 0, 0] and "no account" in done[0].out
    assert ends(office, run_id) == "SUCCEEDED" and office.ran.count("charge y") == 1


def test_a_step_is_held(office: Office) -> None:
    office.bodies["report"] = fails(TimeoutError("no answer"))
    run_id = office.deliver(office.slot(TODAY))
    done = follow(office, "A step is held", RUN=short(run_id), STEP="report")
    assert [result.code for result in done] == [0, 0, 0] and "held" in done[0].out
    assert ends(office, run_id) == "SUCCEEDED" and "report" not in office.ran


def test_a_step_refuses_another_input(office: Office) -> None:
    """The code of `take` is mended after `report` is done, and its result is another one; `finish` never came."""
    run_id = office.deliver(office.slot(TODAY))
    office.op("redo", short(run_id), "--from", "take", "--note", "n", "--yes")
    office.bodies["take"] = lambda run, payload: {"a new": "field"}
    office.op("resolve", short(run_id), "report", "--done", "--result", "1", "--note", "n", "--yes")
    path = office.client.document(f"{office.settings.pipeline}_runs/{run_id}/{office.settings.pipeline}_steps/report")
    path.update({"status": "completed", "result": "1", "input_digest": "of the old input"})
    office.op("resume", short(run_id), "--yes")
    assert ends(office, run_id) == "FAILED"
    assert "other_input" in office.op("show", short(run_id)).out
    done = follow(office, "A step refuses another input", RUN=short(run_id), STEP="report")
    assert [result.code for result in done] == [0, 0], [result.err for result in done]
    assert ends(office, run_id) == "SUCCEEDED" and office.ran.count("report") == 1


def test_a_run_did_the_wrong_thing(office: Office) -> None:
    go, there = threading.Event(), threading.Event()

    def waits(run: Any, payload: Any) -> Any:
        there.set()
        assert go.wait(30)
        return {}

    office.bodies["report"] = waits
    run = office.slot(TODAY)
    started = office.launcher().deliver(run, Log(office.write))
    assert there.wait(30)
    commands = chapters()["A run did the wrong thing"]
    assert [words[0] for words in commands] == ["cancel", "redo", "resume"]
    names = {"RUN": short(run.run_id), "STEP": "charge"}
    for words in commands:
        result = office.op(*[names.get(word, word) for word in words], "--yes")
        assert result.code == 0, result.err
        if words[0] == "cancel":
            go.set()
            assert office.ended(started.execution) == "CANCELLED"
            _until_settled(office, run.run_id)
            office.bodies.clear()
    assert ends(office, run.run_id) == "SUCCEEDED"
    assert office.ran.count("charge x") == 2 and office.ran.count("take") == 1


def _until_settled(office: Office, run_id: str) -> None:
    """The body that was at work when its execution was cancelled carries on to its end."""
    for _ in range(1000):
        if office.record(run_id, "report")["status"] != "in_progress":
            return
    raise AssertionError("the step does not end")


def test_slots_without_a_run(office: Office) -> None:
    found, filled = follow(office, "Slots without a run")
    assert (found.code, filled.code) == (3, 0), filled.err
    assert [ends(office, office.slot(day).run_id) for day in (14, TODAY)] == ["SUCCEEDED"] * 2


def test_every_chapter_is_tried() -> None:
    tests = {name.removeprefix("test_") for name in globals()}
    assert {title.lower().replace(" ", "_") for title in chapters()} <= tests


def test_what_alerts_say_is_in_the_run_book() -> None:
    book = README.read_text().split("\n## Run book\n")[1]
    texts = (README.parent / "deploy" / "foundation.sh").read_text()
    names = re.search(r"readonly ALERTS=\(([^)]*)\)", texts + (README.parent / "deploy.sh").read_text())
    for alert in names[1].split() if names else re.findall(r"^  (\w+)\) echo \"resource\.type", texts, re.M):
        assert f"Alert `{alert} failed`" in book
