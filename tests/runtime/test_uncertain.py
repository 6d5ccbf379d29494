"""Every RPC that writes, whatever is wrong with its answer: our own write is known for ours, and lands once."""

from __future__ import annotations

from typing import Any

import pytest

from exactly_once.errors import LeaseLost, Permanent, Retry
from tests.runtime.bench import Bench, Effects, effect_count, external, raising, writes_once
from tools.emulators.faults import Action, Fault

FAULTS = {
    "unavailable before": Fault(Action.LOSE_REQUEST, code="UNAVAILABLE"),
    "aborted before": Fault(Action.LOSE_REQUEST, code="ABORTED"),
    "unavailable after": Fault(Action.LOSE_ANSWER, code="UNAVAILABLE"),
    "aborted after": Fault(Action.LOSE_ANSWER, code="ABORTED"),
    "deadline after": Fault(Action.LOSE_ANSWER, code="DEADLINE_EXCEEDED"),
    "internal after": Fault(Action.LOSE_ANSWER, code="INTERNAL"),
    "cancelled after": Fault(Action.LOSE_ANSWER, code="CANCELLED"),
    "unknown after": Fault(Action.LOSE_ANSWER, code="UNKNOWN"),
    "already exists after": Fault(Action.LOSE_ANSWER, code="ALREADY_EXISTS"),
    "failed precondition after": Fault(Action.LOSE_ANSWER, code="FAILED_PRECONDITION"),
    "dropped after": Fault(Action.DROP),
    "sent twice": Fault(Action.TWICE),
    "lands late": Fault(Action.LATE, code="UNAVAILABLE", seconds=60),
}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> Fault:
    return FAULTS[request.param]


def at_commit(fault: Fault, nth: int) -> Fault:
    return Fault(fault.action, method="Commit", nth=nth, code=fault.code, seconds=fault.seconds)


def land_late(bench: Bench) -> None:
    """Let a late write land now, and wait until the server has answered it."""
    import threading

    bench.clock.land()
    for thread in threading.enumerate():
        if thread.name.endswith("-late"):
            thread.join(30.0)


def test_claim(bench: Bench, fault: Fault) -> None:
    bench.plan.add(at_commit(fault, 1))
    body = Effects()
    assert bench.call(external(body)).result == {"ok": True}
    settled = bench.record()
    land_late(bench)
    assert bench.record() == settled
    assert len(body) == 1
    assert body.runs[0].attempt == 1
    assert len(bench.seen("step.claimed")) == 1
    assert not bench.seen("step.duplicate")
    assert not bench.plan.pending()


def test_take_over(bench: Bench, fault: Fault) -> None:
    assert bench.call(external(raising(Retry("not now")))).status == 500
    bench.plan.clear()
    bench.plan.add(at_commit(fault, 2))
    body = Effects()
    assert bench.call(external(body)).result == {"ok": True}
    settled = bench.record()
    land_late(bench)
    assert bench.record() == settled
    assert [run.attempt for run in body.runs] == [2]
    assert not bench.plan.pending()


def test_complete(bench: Bench, fault: Fault) -> None:
    bench.plan.add(at_commit(fault, 2))
    body = Effects()
    assert not bench.call(external(body)).replayed
    land_late(bench)
    assert bench.status() == "completed"
    assert bench.call(external(body)).replayed
    assert len(body) == 1
    assert not bench.plan.pending()


@pytest.mark.parametrize(
    ("raised", "on_unknown", "status", "code"),
    [
        (Retry("not now"), "retry", "released", "retry"),
        (Permanent("never"), "retry", "failed", "failed"),
        (ConnectionError("cut"), "retry", "released", "error"),
        (ConnectionError("cut"), "hold", "unknown", "held"),
    ],
    ids=["release", "fail", "release unknown", "hold"],
)
def test_settle_otherwise(
    bench: Bench, fault: Fault, raised: Exception, on_unknown: Any, status: str, code: str
) -> None:
    bench.plan.add(at_commit(fault, 2))
    assert bench.call(external(raising(raised), on_unknown)).code == code
    land_late(bench)
    assert bench.status() == status
    assert not bench.plan.pending()


def test_extend_and_mark(bench: Bench, fault: Fault) -> None:
    bench.lease = 60
    bench.plan.add(at_commit(fault, 2), at_commit(fault, 4))
    left: list[float] = []

    def act(run: Any, payload: Any) -> Any:
        left.append(run.extend(200))
        run.starting()
        return None

    assert bench.call(external(act, "hold", marks_start=True)).result is None
    land_late(bench)
    record = bench.record()
    assert record
    assert record["status"] == "completed"
    assert record["started"] == record["attempt_id"]
    assert 150 < left[0] <= 201
    assert 199 < record["lease_seconds"] < 230
    assert len(bench.plan.injected) == 2


def test_transaction(bench: Bench, fault: Fault) -> None:
    step, ran = writes_once(bench)
    bench.plan.add(at_commit(fault, 1))
    assert bench.call(step).result == {"n": 1}
    land_late(bench)
    assert effect_count(bench) == 1
    assert bench.call(step).replayed
    assert effect_count(bench) == 1
    applied = fault.action in (Action.LOSE_ANSWER, Action.DROP, Action.TWICE)
    assert len(ran) == 1 or not applied
    assert not bench.plan.pending()


def test_failure_of_a_transactional_step(bench: Bench, fault: Fault) -> None:
    from exactly_once.transactional import Transactional

    def body(transaction: Any, run: Any, payload: Any) -> Any:
        raise Permanent("never")

    bench.plan.add(at_commit(fault, 1))
    assert bench.call(Transactional(body)).code == "failed"
    land_late(bench)
    assert bench.status() == "failed"
    assert len(bench.seen("step.failed")) == 1
    assert not bench.plan.pending()


@pytest.mark.parametrize("method", ["BeginTransaction", "BatchGetDocuments", "Rollback"])
@pytest.mark.parametrize("code", ["UNAVAILABLE", "ABORTED", "INTERNAL", "DEADLINE_EXCEEDED"])
def test_other_rpcs_of_a_transaction(bench: Bench, method: str, code: str) -> None:
    step, _ = writes_once(bench)
    bench.plan.add(Fault(Action.LOSE_ANSWER, method=method, code=code))
    first = bench.call(step)
    second = bench.call(step)
    assert first.result == second.result == {"n": 1}
    assert effect_count(bench) == 1
    assert not bench.plan.pending()


def test_somebody_elses_write_is_not_taken_for_ours(bench: Bench) -> None:
    """Our claim's answer is lost, and the claim too; another attempt's claim stands there when we look."""
    late = Effects()
    inside: list[Any] = []

    def act(run: Any, payload: Any) -> Any:
        bench.plan.add(Fault(Action.LOSE_REQUEST, method="Commit", code="UNAVAILABLE"))
        inside.append(bench.call(external(late)).code)
        return "first"

    assert bench.call(external(act)).result == "first"
    assert inside == ["busy"]
    assert len(late) == 0


def test_record_gone_while_at_work(bench: Bench) -> None:
    """An absent record means fenced: what was deleted cannot be settled, and is not made again."""

    def act(run: Any, payload: Any) -> Any:
        bench.direct.document(bench.path()).delete()
        return "done"

    assert bench.call(external(act)).code == "fenced"
    assert bench.record() is None
    assert [event["reason"] for event in bench.seen("step.fenced")] == ["the record is gone"]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "ABORTED", "INTERNAL", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN"])
def test_reading_that_fails_is_repeated(bench: Bench, code: str) -> None:
    body = Effects()
    bench.call(external(body))
    bench.plan.add(Fault(Action.LOSE_ANSWER, method="BatchGetDocuments", code=code, times=2))
    assert bench.call(external(body)).replayed
    assert not bench.plan.pending()


def test_begin_refused_is_reported_as_what_it_is(bench: Bench) -> None:
    step, ran = writes_once(bench)
    bench.plan.add(Fault(Action.LOSE_REQUEST, method="BeginTransaction", code="PERMISSION_DENIED", times=50))
    answer = bench.call(step)
    assert answer.code == "unreachable"
    assert "PermissionDenied" in answer.json["error"]["message"]
    assert bench.rpcs == ["BeginTransaction"]
    assert ran == []


def test_claim_refused_is_reported_as_what_it_is(bench: Bench) -> None:
    bench.plan.add(Fault(Action.LOSE_REQUEST, code="PERMISSION_DENIED", times=50))
    answer = bench.call(external(Effects()))
    assert "PermissionDenied" in answer.json["error"]["message"]
    assert bench.rpcs == ["Commit", "BatchGetDocuments"]


def test_commit_at_fault_is_not_sent_again(bench: Bench) -> None:
    """A commit that Firestore refuses for what is in it: read once more, then 500; the body does not run again."""
    from exactly_once.transactional import Transactional

    taken = bench.direct.document(f"{bench.pipeline}_effects/taken")
    taken.set({})
    ran: list[int] = []

    def body(transaction: Any, run: Any, payload: Any) -> Any:
        ran.append(1)
        transaction.create(bench.client.document(taken.path), {})

    answer = bench.call(Transactional(body))
    assert answer.code == "error"
    assert "AlreadyExists" in answer.json["error"]["message"]
    assert ran == [1]
    assert bench.record() is None


def test_held_attempt_that_finishes_after_all(bench: Bench) -> None:
    """A record that became `unknown` under our own id is still ours to settle: nobody has taken it over."""

    def act(run: Any, payload: Any) -> Any:
        bench.direct.document(bench.path()).update({"status": "unknown", "expire_at": None})
        assert not run.still_held()
        with pytest.raises(LeaseLost):
            run.extend(1000)
        return "done"

    assert bench.call(external(act, "hold")).result == "done"
    assert bench.status() == "completed"
