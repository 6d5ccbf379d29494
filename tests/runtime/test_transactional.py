"""Transactional steps: effect and record are one commit."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from exactly_once.errors import Permanent, Retry
from exactly_once.transactional import Transactional
from tests.runtime.bench import Bench, Effects, effect_count, external, raising, writes_once


def test_rpcs(bench: Bench) -> None:
    """The body's own read aside."""

    def body(transaction: Any, run: Any, payload: Any) -> Any:
        transaction.set(bench.client.document(f"{bench.pipeline}_effects/n"), {"n": 1})

    step = Transactional(body)
    assert bench.counted(lambda: bench.call(step)) == ["BeginTransaction", "BatchGetDocuments", "Commit"]
    assert bench.counted(lambda: bench.call(step)) == ["BeginTransaction", "BatchGetDocuments", "Rollback"]


def test_completes_and_replays(bench: Bench) -> None:
    step, ran = writes_once(bench)
    first, second = bench.call(step), bench.call(step)
    assert (first.result, first.replayed, second.result, second.replayed) == ({"n": 1}, False, {"n": 1}, True)
    assert ran == [1]
    assert effect_count(bench) == 1
    record = bench.record()
    assert record
    assert record["status"] == "completed"
    assert record["expire_at"] is not None


@pytest.mark.parametrize("error", [OSError("x"), Retry("later"), KeyError("bug")])
def test_exception_writes_nothing(bench: Bench, error: Exception) -> None:
    def body(transaction: Any, run: Any, payload: Any) -> Any:
        transaction.set(bench.client.document(f"{bench.pipeline}_effects/n"), {"n": 1})
        raise error

    assert bench.call(Transactional(body)).status == 500
    assert bench.record() is None
    assert effect_count(bench) == 0


def test_permanent_fails_without_the_effect(bench: Bench) -> None:
    def body(transaction: Any, run: Any, payload: Any) -> Any:
        transaction.set(bench.client.document(f"{bench.pipeline}_effects/n"), {"n": 1})
        raise Permanent("no stock")

    answer = bench.call(Transactional(body))
    assert (answer.status, answer.code) == (422, "failed")
    assert effect_count(bench) == 0
    record = bench.record()
    assert record
    assert (record["status"], record["error"]) == ("failed", "no stock")
    assert record.get("expire_at") is None
    step, ran = writes_once(bench)
    assert bench.call(step).code == "failed"
    assert ran == []


def test_bad_result_commits_nothing(bench: Bench) -> None:
    from decimal import Decimal

    def body(transaction: Any, run: Any, payload: Any) -> Any:
        transaction.set(bench.client.document(f"{bench.pipeline}_effects/n"), {"n": 1})
        return Decimal("1.10")

    answer = bench.call(Transactional(body))
    assert answer.status == 500
    assert "str(value)" in answer.json["error"]["message"]
    assert effect_count(bench) == 0
    assert bench.record() is None


def test_body_meets_what_an_external_step_left(bench: Bench) -> None:
    """The record of an external step of that name: busy while its lease runs, then held; released: taken."""
    step, ran = writes_once(bench)
    inside: list[Any] = []

    def act(run: Any, payload: Any) -> Any:
        inside.append(bench.call(step).code)
        bench.age()
        inside.append(bench.call(step).code)

    assert bench.call(external(act)).code == "fenced"
    assert inside == ["busy", "held"]
    assert bench.status() == "unknown"
    bench.key = "released"
    bench.call(external(raising(Retry("later"))))
    assert bench.call(step).result == {"n": 1}
    assert ran == [2]


def test_other_input_is_refused(bench: Bench) -> None:
    step, _ = writes_once(bench)
    bench.call(step, 1)
    assert bench.call(step, 2).code == "other_input"


def test_replay_for_an_external_step_and_back(bench: Bench) -> None:
    step, ran = writes_once(bench)
    bench.call(external(Effects(lambda run, payload: [1])))
    assert bench.call(step).result == [1]
    assert ran == []


def test_no_lease(bench: Bench) -> None:
    def body(transaction: Any, run: Any, payload: Any) -> Any:
        with pytest.raises(RuntimeError, match="no lease"):
            run.extend(10)
        return None

    assert bench.call(Transactional(body)).status == 200


def test_many_at_once_commit_once(bench: Bench) -> None:
    step, _ = writes_once(bench)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(bench.call(step))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert effect_count(bench) == 1
    assert sum(answer.status == 200 and not answer.replayed for answer in answers) == 1
    assert all(answer.status in (200, 500) for answer in answers)
