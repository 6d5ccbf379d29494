"""The chunk form: many items in one call, each with a record of its own."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from exactly_once.chunks import Chunk
from exactly_once.errors import Permanent, Retry
from tests.runtime.bench import Bench, Effects, external, raising
from tools.emulators.faults import Action, Fault


def of(*names: str) -> dict[str, Any]:
    return {"items": [{"item": name, "input": {"n": name}} for name in names]}


def test_results_in_order_and_done_items_are_skipped(bench: Bench) -> None:
    body = Effects(lambda run, payload: [run.item, payload])
    step = Chunk(external(body), 4)
    names = [f"item {index}" for index in range(20)]
    first = bench.call(step, of(*names))
    assert first.result == [[name, {"n": name}] for name in names]
    second = bench.call(step, of(*reversed(names)))
    assert second.replayed
    assert second.result == first.result[::-1]
    assert len(body) == 20
    assert len({run.idempotency_key for run in body.runs}) == 20
    assert bench.call(step, of(*names, "new")).result[-1] == ["new", {"n": "new"}]
    assert len(body) == 21


def test_one_item_keeps_no_other_from_being_done(bench: Bench) -> None:
    def act(run: Any, payload: Any) -> Any:
        if run.item == "bad":
            raise Permanent("no such order")
        if run.item == "later":
            raise Retry("not yet")
        return run.item

    answer = bench.call(Chunk(external(act), 1), of("a", "bad", "later", "b"))
    assert (answer.status, answer.code) == (500, "retry")
    assert "2 of 4 items" in answer.json["error"]["message"]
    assert "no such order" in answer.json["error"]["message"]
    assert [bench.status(name) for name in ("a", "bad", "later", "b")] == [
        "completed",
        "failed",
        "released",
        "completed",
    ]
    answer = bench.call(Chunk(external(lambda run, payload: run.item), 1), of("a", "bad", "later", "b"))
    assert (answer.status, answer.code) == (422, "failed")
    assert bench.status("later") == "completed"


def test_item_is_the_same_in_a_chunk_and_alone(bench: Bench) -> None:
    body = Effects()
    bench.call(external(body), {"n": "a"}, item="a")
    assert bench.call(Chunk(external(body), 1), of("a")).replayed
    assert len(body) == 1


def test_bare_names_and_no_items(bench: Bench) -> None:
    body = Effects(lambda run, payload: payload)
    assert bench.call(Chunk(external(body), 2), {"items": ["a", "b"]}).result == [None, None]
    assert bench.call(Chunk(external(body), 2), {"items": []}).result == []


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        {"items": {}},
        {"items": [1]},
        {"items": [""]},
        {"items": [{}]},
        {"items": ["a", {"item": "a"}]},
        {"items": ["\ud800"]},
    ],
)
def test_malformed_lists(bench: Bench, payload: Any) -> None:
    body = Effects()
    assert bench.call(Chunk(external(body), 2), payload).code == "malformed"
    assert bench.rpcs == []


def test_item_beside_a_list_is_refused(bench: Bench) -> None:
    assert bench.call(Chunk(external(Effects()), 2), of("a"), item="b").code == "malformed"


def test_time_nearly_over(bench: Bench) -> None:
    """No item is begun late; the next call does the rest."""
    elapsed = [0.0]
    base = bench.host.monotonic()
    host = replace(bench.host, monotonic=lambda: base + elapsed[0])

    def act(run: Any, payload: Any) -> Any:
        elapsed[0] += 100
        return run.item

    step = Chunk(external(act), 1)
    answer = bench.call(step, of("a", "b", "c", "d"), host=host)
    assert (answer.status, answer.code) == (500, "more")
    assert [bench.status(name) for name in "abcd"] == ["completed"] * 3 + [None]
    assert bench.call(step, of("a", "b", "c", "d"), host=host).result == ["a", "b", "c", "d"]


def test_firestore_out_of_reach_ends_the_call(bench: Bench) -> None:
    body = Effects()
    bench.plan.add(Fault(Action.LOSE_REQUEST, code="PERMISSION_DENIED", times=1000))
    answer = bench.call(Chunk(external(body), 1), of(*(str(index) for index in range(50))))
    assert answer.status == 500
    assert len(body) == 0
    assert len(bench.rpcs) == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("chunk")]


def test_held_item(bench: Bench) -> None:
    answer = bench.call(Chunk(external(raising(OSError("cut")), "hold"), 2), of("a"))
    assert (answer.status, answer.code) == (422, "held")


def test_results_over_the_limit_together(bench: Bench) -> None:
    step = Chunk(external(lambda run, payload: "x" * 200_000), 2)
    answer = bench.call(step, of("a", "b"))
    assert answer.code == "failed"
    assert "make chunks smaller" in answer.json["error"]["message"]
