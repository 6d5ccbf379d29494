"""Firestore that is not there, or does not answer: 500 in time, the body not run, nothing left behind.

What is asserted is the sum of what the runtime allows itself to wait: the time-outs that it gives to RPCs and the
pauses between them, on a clock that they alone move.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from exactly_once.chunks import Chunk
from exactly_once.errors import StoreError, Uncertain, Unreachable
from exactly_once.external import External
from exactly_once.runtime import Runtime
from exactly_once.steps import Handler, serve
from exactly_once.store import Fields, Host, Snapshot, TransactionToken, Version, Work
from exactly_once.transactional import Transactional
from tests.runtime.bench import Bench, Effects, Request, external, writes_once
from tools.emulators.faults import Action, Fault

ALLOWED = 10.0


class Clock:
    """Each thread's own waiting: threads that wait at the same time do not wait for one another."""

    def __init__(self) -> None:
        self._waited: dict[int, float] = defaultdict(float)

    def sleep(self, seconds: float) -> None:
        self._waited[threading.get_ident()] += seconds

    def monotonic(self) -> float:
        return self._waited[threading.get_ident()]

    @property
    def seconds(self) -> float:
        """Of the thread that waited longest."""
        return max(self._waited.values())

    @property
    def host(self) -> Host:
        return Host(monotonic=self.monotonic, sleep=self.sleep, now=lambda: datetime(2026, 1, 1, tzinfo=UTC))


class Hanging:
    """A store whose every call takes all the time it was given; `refused`: none at all."""

    def __init__(self, clock: Clock, refused: bool) -> None:
        self._clock = clock
        self._refused = refused

    def _fail(self, timeout: float, error: type[Uncertain | Unreachable]) -> StoreError:
        self._clock.sleep(0.0 if self._refused else timeout)
        return error("no answer")

    def create(self, path: str, fields: Fields, timeout: float) -> Version:
        raise self._fail(timeout, Uncertain)

    def read(self, path: str, timeout: float) -> Snapshot:
        raise self._fail(timeout, Unreachable)

    def replace(self, path: str, fields: Fields, version: Version, timeout: float) -> Version:
        raise self._fail(timeout, Uncertain)

    def transaction(self, path: str, work: Work, retry_of: TransactionToken, timeout: float) -> None:
        raise self._fail(timeout, Unreachable)


def _body(*arguments: Any) -> Any:
    raise AssertionError("the body ran")


HANDLERS: dict[str, Callable[[], Handler]] = {
    "external": lambda: External(_body, "hold"),
    "transactional": lambda: Transactional(_body),
    "chunk": lambda: Chunk(External(_body, "retry"), 4),
}


@pytest.fixture
def firestore_kind() -> str:
    return "embedded"


@pytest.mark.parametrize("kind", HANDLERS)
@pytest.mark.parametrize("refused", [False, True], ids=["hangs", "refuses"])
def test_waits_no_longer_than_allowed(bench: Bench, kind: str, refused: bool) -> None:
    import json

    clock = Clock()
    runtime = Runtime(bench.settings, Hanging(clock, refused), clock.host, bench.log)
    body = bench.body({"items": ["a", "b"]} if kind == "chunk" else None)
    _, status, _ = serve(HANDLERS[kind](), runtime, Request("POST", {}, json.dumps(body).encode()))
    assert status == 500
    assert 0 < clock.seconds < ALLOWED
    assert bench.seen("step.error")


@pytest.mark.parametrize("kind", ["external", "transactional"])
def test_server_that_hangs_at_once(bench: Bench, kind: str) -> None:
    """With the real client: its own deadline ends each RPC, and no thread is left."""
    from exactly_once.store import Patience

    body = Effects()
    bench.plan.add(Fault(Action.HANG, times=1000))
    before = {thread for thread in threading.enumerate() if not thread.name.startswith("wire")}
    try:
        bench_patience(bench, Patience(total=0.2, rpc=0.1), monkey := pytest.MonkeyPatch())
        step: Handler = external(body) if kind == "external" else writes_once(bench)[0]
        assert bench.call(step).code == "unreachable"
    finally:
        monkey.undo()
    left = {thread for thread in threading.enumerate() if not thread.name.startswith("wire")} - before
    assert not [thread for thread in left if not thread.daemon or "chunk" in thread.name or "keep" in thread.name]
    assert len(body) == 0
    bench.plan.clear()
    assert bench.record() is None


def bench_patience(bench: Bench, patience: Any, monkey: pytest.MonkeyPatch) -> None:
    """Shrink what the runtime allows itself."""
    import exactly_once.protocol
    import exactly_once.transactional

    monkey.setattr(exactly_once.protocol, "Patience", lambda: patience)
    monkey.setattr(exactly_once.transactional, "Patience", lambda tries: patience)


def test_nothing_listens(bench: Bench) -> None:
    """A refused connection is an answer of the network: tried again within the budget, then 500."""
    bench.wire.stop()
    body = Effects()
    assert bench.call(external(body)).code == "unreachable"
    assert bench.call(writes_once(bench)[0]).code == "unreachable"
    assert len(body) == 0


def test_lost_in_the_middle(bench: Bench) -> None:
    """Firestore goes away while the body works: 500, the record stays in progress, and its lease decides."""

    def act(run: Any, payload: Any) -> Any:
        bench.plan.add(Fault(Action.LOSE_REQUEST, code="UNAVAILABLE", times=1000))
        return "done"

    assert bench.call(external(act)).code == "unreachable"
    bench.plan.clear()
    assert bench.status() == "in_progress"
    assert bench.call(external(Effects())).code == "busy"
    bench.age()
    assert bench.call(external(Effects())).status == 200
