"""Failures at every step, and what an operator makes of them: resolve, accept, redo, cancel, resume."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from exactly_once.errors import NotAccepted, Permanent
from exactly_once.identity import RunContext
from exactly_once.log import Log
from tests.operate.office import Office
from tools.operate.naming import short
from tools.operate.place import Options, place

OPTIONS = Options(cloud=False, environment=None, json=False, yes=True)


def raising(error: Exception, only: str | None = None) -> Any:
    def body(run: Any, payload: Any) -> Any:
        if only in (None, run.item):
            raise error
        return {"item": run.item}

    return body


@pytest.mark.parametrize("step", ["take", "charge", "report"])
def test_a_run_that_failed_at_any_step_goes_on_from_there(office: Office, step: str) -> None:
    office.bodies[step] = raising(Permanent("no such account"), "y" if step == "charge" else None)
    run_id = office.deliver(office.slot(1))
    run = short(run_id)
    done = list(office.ran)
    shown = office.op("runs", "--failed")
    assert run in shown.out and "failed" in shown.out and step in shown.out
    receipt = office.op("show", run)
    assert "no such account" in receipt.out and "step.failed" in receipt.out

    refused = office.op("resume", run, "--yes")
    assert refused.code == 1 and f"resolve {run} {step}" in refused.err
    where = [step, "y"] if step == "charge" else [step]
    assert office.op("resolve", run, *where, "--redo", "--note", "the account is there now", "--yes").code == 0
    office.bodies.clear()
    assert office.op("resume", run, "--yes", "--note", "fixed").code == 0
    assert office.ended(office.record(run_id)["execution"]) == "SUCCEEDED"
    assert sorted(office.ran) == ["charge x", "charge y", "charge z", "report", "take"]
    assert office.ran[: len(done)] == done
    kept = office.record(run_id, *where)["resolutions"]
    assert [(entry["what"], entry["why"]) for entry in kept] == [("resolved as redo", "the account is there now")]
    assert office.record(run_id)["resolutions"][0]["why"] == "fixed"
    again = office.op("resume", run, "--yes")
    assert again.code == 1 and "has succeeded" in again.err


def test_a_held_step_is_resolved_as_done_with_its_result(office: Office) -> None:
    office.bodies["report"] = raising(TimeoutError("no answer"))
    run_id = office.deliver(office.slot(1))
    shown = office.op("show", short(run_id))
    assert "held" in shown.out and "TimeoutError: no answer" in shown.out
    words = ("resolve", short(run_id), "report", "--done", "--result", '{"id": 7}', "--note", "it is in the ledger")
    asked = office.op(*words, answer="n\n")
    assert asked.code == 130 and "it will count as completed" in asked.out
    assert office.record(run_id, "report")["status"] == "unknown"
    assert office.op(*words, answer="y\n").code == 0
    office.op("resume", short(run_id), "--yes")
    execution = office.record(run_id)["execution"]
    assert office.ended(execution) == "SUCCEEDED"
    assert office.workflows.executions.get_execution({"name": execution})["result"] == '{"id":7}'
    assert "report" not in office.ran


def test_a_changed_input_is_accepted(office: Office) -> None:
    office.bodies["report"] = raising(Permanent("refused"))
    run_id = office.deliver(office.slot(1))
    run = short(run_id)
    refused = office.op("accept", run, "report", "--note", "n", "--yes")
    assert refused.code == 1 and "only a completed step" in refused.err
    assert office.op("accept", run, "take", "--note", "the fix changes its input", "--yes").code == 0
    record = office.record(run_id, "take")
    assert record["input_digest"] is None
    assert record["resolutions"][0]["why"] == "the fix changes its input"


def test_redo_says_what_it_repeats_and_the_next_resume_does_it(office: Office) -> None:
    run_id = office.deliver(office.slot(1))
    run = short(run_id)
    asked = office.op("redo", run, "--from", "charge", "--note", "wrong price", answer="n\n")
    assert asked.code == 130
    assert "charge (3 items, 3 of them completed): the receiver is called AGAIN with the same idempotency" in asked.out
    assert "report (completed)" in asked.out and "take" not in asked.out
    assert office.op("redo", run, "--from", "charge", "--note", "wrong price", "--yes").code == 0
    assert [entry["why"] for entry in office.record(run_id, "charge", "x")["resolutions"]] == ["wrong price"]
    assert office.op("resume", run, "--yes").code == 0
    assert office.ended(office.record(run_id)["execution"]) == "SUCCEEDED"
    assert Counter(office.ran) == {"take": 1, "charge x": 2, "charge y": 2, "charge z": 2, "report": 2}
    taken = office.op("redo", run, "--from", "take", "--note", "n", answer="n\n")
    assert "its writes to Firestore are made AGAIN" in taken.out
    unknown = office.op("redo", run, "--from", "nothing", "--note", "n")
    assert unknown.code == 1 and "it has take, charge, report" in unknown.err


def test_a_run_at_work_is_cancelled_and_resumed(office: Office) -> None:
    go, there = threading.Event(), threading.Event()

    def waits(run: Any, payload: Any) -> Any:
        there.set()
        assert go.wait(30)
        return {}

    office.bodies["take"] = waits
    run = office.slot(1)
    started = office.launcher().deliver(run, Log(office.write))
    try:
        assert there.wait(30)
        refused = office.op("resume", short(run.run_id), "--yes")
        assert refused.code == 1 and "is at work" in refused.err
        assert "is at work" in office.op("redo", short(run.run_id), "--from", "take", "--note", "n", "--yes").err
        assert "active" in office.op("runs").out
        cancelled = office.op("cancel", short(run.run_id), "--note", "wrong data", "--yes")
        assert cancelled.code == 0, cancelled.err
    finally:
        go.set()
    assert office.ended(started.execution) == "CANCELLED"
    assert office.record(run.run_id)["resolutions"][0]["why"] == "wrong data"
    again = office.op("cancel", short(run.run_id), "--note", "n", "--yes")
    assert again.code == 1 and "nothing to cancel" in again.err
    office.bodies.clear()
    assert office.op("resume", "--failed", "--yes").code == 0
    assert office.ended(office.record(run.run_id)["execution"]) == "SUCCEEDED"


def test_of_two_operators_the_second_is_refused(office: Office) -> None:
    """Each decides on what was shown; what another changed in between is said, and nothing happens twice."""
    office.bodies["report"] = raising(TimeoutError("no answer"))
    run_id = office.deliver(office.slot(1))
    run = short(run_id)
    first, second = ("--done", "--note", "I saw it"), ("--redo", "--note", "I did not")
    seen = office.record(run_id, "report")["attempt_id"]
    assert office.op("resolve", run, "report", *first, "--yes").code == 0
    with place(OPTIONS) as there:
        with pytest.raises(NotAccepted, match="the record has changed since: it is completed"):
            there.operator.resolve(run_id, "report", None, attempt_id=seen, outcome="redo", note=second[2])
        stale = office.record(run_id)["attempt_id"]
        assert office.op("resume", run, "--yes").code == 0
        with pytest.raises(NotAccepted, match="the record has changed since"):
            there.operator.resume(run_id, there.starter, note="", attempt_id=stale)
    assert len(office.record(run_id)["resolutions"]) == 1


def test_two_resumptions_at_once_start_one_execution(office: Office) -> None:
    office.bodies["report"] = raising(Permanent("no"))
    run_id = office.deliver(office.slot(1))
    started: list[RunContext] = []

    class Starter:
        """The first waits in the middle until the second has been refused."""

        def find(self, run: RunContext) -> str | None:
            raise AssertionError

        def start(self, run: RunContext) -> str:
            started.append(run)
            refused = office.op("resume", short(run_id), "--anyway", "--yes", "--note", "me too")
            assert refused.code == 1 and "is resuming it at this moment (mine)" in refused.err
            return f"{office.settings.workflow_name}/executions/new"

    with place(OPTIONS) as there:
        assert there.operator.resume(run_id, Starter(), note="mine").endswith("/new")
    assert len(started) == 1
    assert office.record(run_id)["resuming"] is None
