"""External steps: leases, what a body raises, what a crash leaves behind, and what each costs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from exactly_once.errors import LeaseLost, Permanent, Retry
from exactly_once.external import NOT_DONE, UNKNOWN, Done, Verdict
from tests.runtime.bench import HOUR, Bench, Effects, external, raising


class Killed(BaseException):
    """Ends an attempt as SIGKILL does: nothing of it runs afterwards."""


def crash(bench: Bench, on_unknown: Any = "retry", *, marks_start: bool = False, mark: bool = False) -> dict[str, Any]:
    """An attempt that claims and then vanishes: its record, whose lease has run out."""
    vanished: list[Any] = []

    def act(run: Any, payload: Any) -> Any:
        if mark:
            run.starting()
        vanished.append(bench.record())

    bench.call(external(act, on_unknown, marks_start=marks_start))
    bench.direct.document(bench.path()).set(vanished[0])
    bench.age()
    return dict(vanished[0])


# -- what it costs


def test_rpcs_of_an_external_step(bench: Bench) -> None:
    step = external(Effects())
    assert bench.counted(lambda: bench.call(step)) == ["Commit", "Commit"]
    assert bench.counted(lambda: bench.call(step)) == ["Commit", "BatchGetDocuments"]
    bench.key = "released"
    bench.call(external(raising(Retry("later"))))
    assert bench.counted(lambda: bench.call(step)) == ["Commit", "BatchGetDocuments", "Commit", "Commit"]
    bench.key = "crashed"
    crash(bench)
    assert bench.counted(lambda: bench.call(step)) == ["Commit", "BatchGetDocuments", "Commit", "Commit"]


@pytest.mark.parametrize("error", [Retry("r"), Permanent("p"), OSError("o")])
@pytest.mark.parametrize("on_unknown", ["retry", "hold"])
def test_rpcs_of_a_body_that_raises(bench: Bench, error: Exception, on_unknown: Any) -> None:
    assert bench.counted(lambda: bench.call(external(raising(error), on_unknown))) == ["Commit", "Commit"]


# -- leases


@pytest.mark.parametrize("skew", [-HOUR, 0, HOUR])
def test_lease_is_judged_by_the_server_alone(bench: Bench, skew: float) -> None:
    host = bench.with_process_clock(skew)
    inside: list[int] = []
    step = external(Effects())

    def act(run: Any, payload: Any) -> Any:
        inside.append(bench.call(step, host=host).status)
        bench.age(seconds=250)
        inside.append(bench.call(step, host=host).status)
        bench.age(seconds=81)
        inside.append(bench.call(step, host=host).status)
        return "late"

    assert bench.call(external(act), host=host).code == "fenced"
    assert inside == [409, 409, 200]
    assert bench.call(step, host=host).result == {"ok": True}


def test_fenced_attempt_changes_nothing(bench: Bench) -> None:
    """Taken over while at work, whatever the body then does."""
    for index, end in enumerate([lambda: "done", _raise(Retry("r")), _raise(Permanent("p")), _raise(OSError("o"))]):
        bench.key = f"key {index}"
        told: list[Any] = []

        def act(run: Any, payload: Any, end: Any = end, told: list[Any] = told) -> Any:
            bench.age()
            bench.call(external(Effects(lambda run, payload: "the other")))
            told.append(run.still_held())
            with pytest.raises(LeaseLost):
                run.extend(1000)
            return end()

        assert bench.call(external(act, "hold" if index == 3 else "retry")).code == "fenced"
        assert told == [False]
        record = bench.record()
        assert record
        assert (record["status"], record["result"]) == ("completed", '"the other"')
    assert len(bench.seen("step.fenced")) == 4


def _raise(error: Exception) -> Any:
    def end() -> Any:
        raise error

    return end


def test_lease_that_ran_out_and_nobody_took_still_settles(bench: Bench) -> None:
    def act(run: Any, payload: Any) -> Any:
        bench.age()
        return "late, but alone"

    assert bench.call(external(act)).result == "late, but alone"
    assert bench.status() == "completed"


def test_extension_is_capped_and_keeps_others_out(bench: Bench) -> None:
    bench.lease = 60
    inside: list[Any] = []

    def act(run: Any, payload: Any) -> Any:
        inside.append(run.extend(100_000))
        inside.append(run.extend(100_000))
        bench.age(seconds=300)
        inside.append(bench.call(external(Effects())).status)
        return run.remaining()

    left = bench.call(external(act)).result
    assert inside[0] <= 330
    assert 300 < inside[1] <= 330
    assert inside[2] == 409
    assert left <= 330
    record = bench.record()
    assert record
    assert record["lease_seconds"] == 330.0
    assert record["claimed_at"] is not None


def test_keep_alive(bench: Bench) -> None:
    """Rounds of the keeper come when the test says so."""
    import dataclasses

    bench.lease = 60
    tick, rounds = threading.Semaphore(0), threading.Semaphore(0)

    def wait(done: threading.Event, seconds: float) -> bool:
        assert seconds == 20
        rounds.release()
        while not tick.acquire(timeout=0.01):
            if done.is_set():
                return True
        return done.is_set()

    elapsed = [0.0]
    base = bench.host.monotonic()
    host = dataclasses.replace(bench.host, wait=wait, monotonic=lambda: base + elapsed[0])
    leases: list[float] = []

    def act(run: Any, payload: Any) -> Any:
        with run.keep_alive():
            for _ in range(2):
                rounds.acquire()
                elapsed[0] += 20
                tick.release()
            rounds.acquire()
            leases.append(bench.record()["lease_seconds"])  # type: ignore[index]
            bench.age()
            bench.call(external(Effects()))
            tick.release()
            while run.still_held():
                pass
        return "never said"

    assert bench.call(external(act), host=host).code == "fenced"
    assert leases == [100.0]
    assert not [thread for thread in threading.enumerate() if thread.name == "keep-alive"]


# -- what a body raises


def test_retry_releases_and_permanent_fails(bench: Bench) -> None:
    assert bench.call(external(raising(Retry("not yet")))).code == "retry"
    record = bench.record()
    assert record
    assert (record["status"], record["error"]) == ("released", "not yet")
    answer = bench.call(external(raising(Permanent("no such card"))))
    assert (answer.status, answer.code, answer.json["error"]["message"]) == (422, "failed", "no such card")
    record = bench.record()
    assert record
    assert (record["status"], record["error"], record["expire_at"]) == ("failed", "no such card", None)
    body = Effects()
    assert bench.call(external(body)).code == "failed"
    assert len(body) == 0


def test_released_takes_the_new_input(bench: Bench) -> None:
    bench.call(external(raising(Retry("not yet"))), {"n": 1})
    body = Effects(lambda run, payload: payload)
    assert bench.call(external(body), {"n": 2}).result == {"n": 2}
    assert bench.call(external(body), {"n": 1}).code == "other_input"


def test_unknown_outcome_under_retry_repeats_with_the_same_key(bench: Bench) -> None:
    bench.call(external(raising(TimeoutError("who knows"))))
    body = Effects()
    bench.call(external(body))
    assert body.runs[0].attempt == 2
    bench.key = "another run"
    other = Effects()
    bench.call(external(other))
    assert other.runs[0].idempotency_key != body.runs[0].idempotency_key


def test_unknown_outcome_under_hold_runs_nothing_more(bench: Bench) -> None:
    body = Effects(raising(TimeoutError("who knows")))
    assert bench.call(external(body, "hold")).status == 422
    for _ in range(3):
        assert bench.call(external(body, "hold")).code == "held"
    record = bench.record()
    assert record
    assert (record["status"], record["expire_at"], record["error"]) == ("unknown", None, "TimeoutError: who knows")
    assert len(body) == 1
    assert len(bench.seen("step.held")) == 1


def test_end_of_the_process_is_an_unknown_outcome(bench: Bench) -> None:
    for on_unknown, status in (("hold", "unknown"), ("retry", "released")):
        bench.key = on_unknown
        with pytest.raises(SystemExit):
            bench.call(external(raising(SystemExit()), on_unknown))  # type: ignore[arg-type]
        assert bench.status() == status


@pytest.mark.parametrize("on_unknown", ["retry", "hold"])
@pytest.mark.parametrize(
    ("verdict", "believed", "status", "answer"),
    [
        (Done({"id": 7}), True, "completed", 200),
        (NOT_DONE, True, "released", 500),
        (NOT_DONE, False, None, None),
        (UNKNOWN, True, None, None),
        (OSError("the receiver is down"), True, None, None),
        (LeaseLost("taken over"), True, "in_progress", 409),
    ],
)
def test_verify_after_an_error(
    bench: Bench, on_unknown: Any, verdict: Any, believed: bool, status: str | None, answer: int | None
) -> None:
    """None: as `on_unknown` has it."""
    if not believed:
        bench.lease = 329
    step = external(raising(TimeoutError("who knows")), on_unknown, _verify(verdict))
    expected = answer or (500 if on_unknown == "retry" else 422)
    assert bench.call(step).status == expected
    assert bench.status() == (status or ("released" if on_unknown == "retry" else "unknown"))


def _verify(verdict: Done | Verdict | Exception) -> Any:
    def verify(run: Any, payload: Any) -> Any:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    return verify


# -- what a crash leaves


@pytest.mark.parametrize(
    ("on_unknown", "verdict", "lease", "runs", "status"),
    [
        ("retry", None, 330, 1, 200),
        ("hold", None, 330, 0, 422),
        ("hold", Done("seen there"), 330, 0, 200),
        ("retry", Done("seen there"), 330, 0, 200),
        ("hold", NOT_DONE, 330, 1, 200),
        ("hold", NOT_DONE, 60, 0, 422),
        ("hold", UNKNOWN, 330, 0, 422),
        ("retry", UNKNOWN, 60, 1, 200),
    ],
)
def test_take_over_of_a_crash(
    bench: Bench, on_unknown: Any, verdict: Any, lease: float, runs: int, status: int
) -> None:
    bench.lease = lease
    before = crash(bench)
    body = Effects()
    answer = bench.call(external(body, on_unknown, _verify(verdict) if verdict else None))
    assert (answer.status, len(body)) == (status, runs)
    record = bench.record()
    assert record
    assert record["attempt_id"] != before["attempt_id"]
    assert record["crashes"] == 1
    assert record["attempts"] == 2


def test_mark_of_the_start(bench: Bench) -> None:
    """Under hold a crash before the mark runs again by itself, one after it waits for an operator."""
    crash(bench, on_unknown="hold", marks_start=True)
    body = Effects()
    assert bench.call(external(body, "hold", marks_start=True)).status == 200
    assert len(body) == 1
    bench.key = "after the mark"
    crash(bench, on_unknown="hold", marks_start=True, mark=True)
    assert bench.call(external(body, "hold", marks_start=True)).code == "held"
    assert len(body) == 1


def test_mark_outlives_a_crash_of_the_take_over(bench: Bench) -> None:
    """The second attempt vanishes before it has dealt with the first one's unknown outcome: the question stays."""
    crash(bench, on_unknown="hold", marks_start=True, mark=True)
    body = Effects()
    vanish = external(body, "hold", _verify_raising(Killed()), marks_start=True)
    with pytest.raises(Killed):
        bench.call(vanish)
    bench.age()
    assert bench.call(external(body, "hold", marks_start=True)).code == "held"
    assert len(body) == 0


def _verify_raising(error: BaseException) -> Any:
    def verify(run: Any, payload: Any) -> Any:
        raise error

    return verify


def test_error_before_the_mark_is_no_unknown_outcome(bench: Bench) -> None:
    assert bench.call(external(raising(KeyError("bug")), "hold", marks_start=True)).status == 500
    assert bench.status() == "released"


def test_starting_needs_its_declaration(bench: Bench) -> None:
    def act(run: Any, payload: Any) -> Any:
        with pytest.raises(RuntimeError, match="marks_start=True"):
            run.starting()

    assert bench.call(external(act)).status == 200


def test_poison(bench: Bench) -> None:
    """Attempts that crash count towards max_attempts, attempts that were released do not."""
    bench.max_attempts = 2
    for _ in range(3):
        bench.call(external(raising(OSError("last words"))))
    crash(bench)
    body = Effects(raising(OSError("last words")))
    assert bench.call(external(body)).status == 500
    crash(bench)
    assert bench.call(external(body)).code == "failed"
    assert len(body) == 1
    record = bench.record()
    assert record
    assert record["status"] == "failed"
    assert "2 attempts ended without a word" in record["error"]
    assert "last words" in record["error"]


# -- results, inputs, items


def test_bad_result_after_the_effect_fails(bench: Bench) -> None:
    body = Effects(lambda run, payload: {1, 2})
    answer = bench.call(external(body))
    assert answer.code == "failed"
    assert "sorted(value)" in answer.json["error"]["message"]
    assert bench.call(external(body)).code == "failed"
    assert len(body) == 1


def test_replay_is_equal_byte_for_byte(bench: Bench) -> None:
    result = {"z": 1.0, "a": 'é\u2028"', "n": None, "deep": [1, 2.5, {"x": True}], "big": 2**60}
    step = external(Effects(lambda run, payload: result))
    first, second = bench.call(step), bench.call(step)
    assert first.text.replace('"replayed": false', '"replayed": true') == second.text
    assert second.result == result


def test_items_have_records_and_keys_of_their_own(bench: Bench) -> None:
    names = ["a", "b", "a/b", "..", "é" * 700, "__x__"]
    body = Effects(lambda run, payload: run.item)
    for name in names * 2:
        assert bench.call(external(body), item=name).result == name
    assert len(body) == len(names)
    assert len({run.idempotency_key for run in body.runs}) == len(names)
    for name in names:
        record = bench.record(name)
        assert record
        assert record["item"] == name


def test_two_at_once(bench: Bench) -> None:
    """While one is at work the other is told busy; its own claim never makes an attempt busy."""
    inside: list[Any] = []
    step = external(Effects())

    def act(run: Any, payload: Any) -> Any:
        inside.append(bench.call(step))

    assert bench.call(external(act)).status == 200
    assert (inside[0].status, inside[0].code) == (409, "busy")
    assert len(bench.seen("step.duplicate")) == 1


def test_other_input_is_refused(bench: Bench) -> None:
    bench.call(external(Effects()), {"a": 1, "b": 1.0})
    assert bench.call(external(Effects()), {"b": 1, "a": 1}).replayed
    assert bench.call(external(Effects()), {"a": 1, "b": 2}).code == "other_input"


def test_what_a_body_is_told(bench: Bench) -> None:
    body = Effects()
    bench.call(external(body), item="x")
    run = body.runs[0]
    assert (run.run_id, run.step, run.item, run.slot, run.kind, run.key) == (
        bench.run().run_id,
        "charge",
        "x",
        None,
        "manual",
        "a key",
    )
    assert len(run.idempotency_key) == 64
    assert 300 < run.remaining() <= 330
