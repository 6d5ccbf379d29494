"""What operators do: resolve, accept, look up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from exactly_once.errors import BadResult, NotAccepted, Permanent, Unreachable
from exactly_once.identity import run_path
from exactly_once.lookups import Lookups
from exactly_once.operate import Operator
from tests.runtime.bench import Bench, Effects, external, raising, writes_once
from tests.runtime.test_external import crash
from tests.runtime.test_uncertain import FAULTS, at_commit, land_late
from tools.emulators.faults import Action, Fault


@pytest.fixture
def operator(bench: Bench) -> Operator:
    return Operator(bench.pipeline, "ops@example.com", bench.protocol, timedelta(days=90), bench.log)


def held(bench: Bench) -> str:
    bench.call(external(raising(TimeoutError("who knows")), "hold"), {"n": 1})
    record = bench.record()
    assert record
    return str(record["attempt_id"])


def test_receiver_that_drops_the_connection(bench: Bench, operator: Operator) -> None:
    """Under hold: one effect, then nothing until an operator has resolved it."""
    body = Effects(raising(ConnectionError("cut")))
    bench.call(external(body, "hold"))
    record = bench.record()
    assert record
    assert bench.call(external(body, "hold")).code == "held"
    operator.resolve(
        bench.run().run_id,
        "charge",
        None,
        attempt_id=record["attempt_id"],
        outcome="done",
        result={"id": 7},
        note="seen in the receiver's ledger",
    )
    answer = bench.call(external(body, "hold"), {"any": "input"})
    assert (answer.replayed, answer.result) == (True, {"id": 7})
    assert len(body) == 1


@pytest.mark.parametrize("outcome", ["done", "redo"])
def test_resolution_is_kept(bench: Bench, operator: Operator, outcome: Any) -> None:
    before = held(bench)
    operator.resolve(bench.run().run_id, "charge", None, attempt_id=before, outcome=outcome, note="looked")
    record = bench.record()
    assert record
    assert record["status"] == ("completed" if outcome == "done" else "released")
    assert record["attempt_id"] != before
    assert (record["attempts"], record["crashes"], record["input_digest"]) == (0, 0, None)
    assert record["expire_at"] is not None
    kept = record["resolutions"][0]
    assert (kept["who"], kept["why"], kept["status"], kept["attempt_id"]) == (
        "ops@example.com",
        "looked",
        "unknown",
        before,
    )
    assert kept["error"] == "TimeoutError: who knows"
    body = Effects()
    answer = bench.call(external(body, "hold"), {"other": "input"})
    assert answer.status == 200
    assert len(body) == (outcome == "redo")
    record = bench.record()
    assert record
    assert len(record["resolutions"]) == 1
    assert len(bench.seen("operator.resolved")) == 1


def test_what_can_be_resolved(bench: Bench, operator: Operator) -> None:
    run_id = bench.run().run_id

    def redo(attempt_id: str) -> None:
        operator.resolve(run_id, "charge", None, attempt_id=attempt_id, outcome="redo", note="n")

    with pytest.raises(NotAccepted, match="no record"):
        redo("x")
    inside: list[str] = []

    def act(run: Any, payload: Any) -> Any:
        record = bench.record()
        assert record
        with pytest.raises(NotAccepted, match="its lease has"):
            redo(record["attempt_id"])
        bench.age()
        redo(record["attempt_id"])
        inside.append(record["attempt_id"])
        return "too late"

    assert bench.call(external(act)).code == "fenced"
    assert bench.status() == "released"
    with pytest.raises(NotAccepted, match="look again"):
        redo(inside[0])
    bench.call(external(raising(Permanent("never"))))
    record = bench.record()
    assert record
    redo(record["attempt_id"])
    bench.call(external(Effects()))
    record = bench.record()
    assert record
    with pytest.raises(NotAccepted, match="is completed"):
        redo(record["attempt_id"])


def test_resolve_of_a_transactional_step(bench: Bench, operator: Operator) -> None:
    crash(bench, "hold")
    step, ran = writes_once(bench)
    assert bench.call(step).code == "held"
    record = bench.record()
    assert record
    run_id = bench.run().run_id
    operator.resolve(run_id, "charge", None, attempt_id=record["attempt_id"], outcome="redo", note="n")
    assert bench.call(step).result == {"n": 1}
    assert ran == [1]
    record = bench.record()
    assert record
    assert len(record["resolutions"]) == 1


def test_bad_result_is_refused_before_anything_is_written(bench: Bench, operator: Operator) -> None:
    before = held(bench)
    with pytest.raises(BadResult):
        operator.resolve(bench.run().run_id, "charge", None, attempt_id=before, outcome="done", result={1}, note="n")
    assert bench.status() == "unknown"


@pytest.mark.parametrize("fault", FAULTS)
def test_answer_that_is_lost(bench: Bench, operator: Operator, fault: str) -> None:
    before = held(bench)
    bench.plan.clear()
    bench.plan.add(at_commit(FAULTS[fault], 1))
    operator.resolve(bench.run().run_id, "charge", None, attempt_id=before, outcome="redo", note="n")
    land_late(bench)
    record = bench.record()
    assert record
    assert record["status"] == "released"
    assert len(record["resolutions"]) == 1


def test_accept_for_another_input(bench: Bench, operator: Operator) -> None:
    bench.call(external(Effects(lambda run, payload: "first")), {"n": 1}, item="x")
    assert bench.call(external(Effects()), {"n": 2}, item="x").code == "other_input"
    record = bench.record("x")
    assert record
    run_id = bench.run().run_id
    operator.accept(run_id, "charge", "x", attempt_id=record["attempt_id"], note="the fix changed the input")
    assert bench.call(external(Effects()), {"n": 2}, item="x").result == "first"
    record = bench.record("x")
    assert record
    assert record["resolutions"][0]["what"] == "accepted for another input"
    held(bench)
    record = bench.record()
    assert record
    with pytest.raises(NotAccepted, match="only a completed step"):
        operator.accept(run_id, "charge", None, attempt_id=record["attempt_id"], note="n")


def test_lookups_go_page_by_page(bench: Bench) -> None:
    lookups = Lookups(bench.client, bench.pipeline)
    slots = [f"2026-01-{day:02}T02:00:00Z" for day in range(1, 8)]
    for index, slot in enumerate(slots):
        bench.direct.document(run_path(bench.pipeline, f"run{index}")).set({"slot": slot, "status": "started"})
    bench.direct.document(run_path(bench.pipeline, "manual")).set({"slot": None, "status": "started"})
    found: list[str] = []
    after: str | None = None
    while True:
        page = lookups.runs(limit=3, after=after)
        assert len(page.records) <= 3
        found += page.records
        after = page.next
        if after is None:
            break
    assert found == [f"run{index}" for index in reversed(range(7))] + ["manual"]
    assert list(lookups.runs(since=slots[2], until=slots[4]).records) == ["run3", "run2"]
    for name in ("a", "b", "c", "d", "e"):
        bench.call(external(Effects()), item=name)
    bench.call(external(raising(Permanent("never"))), item="f")
    run_id = bench.run().run_id
    first = lookups.steps(run_id, limit=4)
    second = lookups.steps(run_id, limit=4, after=first.next)
    items = [record.fields["item"] for page in (first, second) for record in page.records.values()]
    assert sorted(items) == ["a", "b", "c", "d", "e", "f"]
    assert second.next is None
    failed = lookups.steps(run_id, status="failed").records
    assert [record.fields["item"] for record in failed.values()] == ["f"]
    assert lookups.run("run1") is not None
    assert lookups.run("no such run") is None


def test_lookups_say_when_firestore_does_not_answer(bench: Bench) -> None:
    bench.plan.add(Fault(Action.LOSE_REQUEST, code="PERMISSION_DENIED", times=10))
    lookups = Lookups(bench.client, bench.pipeline)
    for look in (lookups.runs, lambda: lookups.run("x"), lambda: lookups.steps("x"), lambda: lookups.runs(after="x")):
        with pytest.raises(Unreachable, match="PermissionDenied"):
            look()
