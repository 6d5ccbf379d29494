"""The wire: what each fault does to a call, as the caller and the callee see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from tools.emulators.clock import JumpClock, OffsetFile, SystemClock
from tools.emulators.faults import Action, Fault, Plan
from tools.emulators.wire import FOREVER, GrpcWire

EVENT_SECONDS = 20.0
"""How long a test waits for something that has to happen; nothing is asserted about time."""


class Echo(grpc.GenericRpcHandler):
    """A callee of any service: answers each request with itself, `size` times, and notes what it saw."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.metadata: list[dict[str, Any]] = []
        self.remaining: list[float | None] = []
        self.arrived = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method.rsplit("/", 1)[1]
        if method == "Many":
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter([request] * 3))
        return grpc.unary_unary_rpc_method_handler(self._refuse if method == "Refuse" else self._answer)

    def _answer(self, request: bytes, context: Any) -> bytes:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        self.remaining.append(context.time_remaining())
        self.arrived.release()
        self.gate.wait(EVENT_SECONDS)
        context.set_trailing_metadata((("after", "wards"),))
        return request

    def _refuse(self, request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", b"why"),))
        context.abort(grpc.StatusCode.ABORTED, "no: é")
        raise AssertionError


class Caller:
    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    def call(
        self, request: bytes = b"x", method: str = "Do", timeout: float | None = None, metadata: Any = ()
    ) -> bytes:
        answer: bytes = self.channel.unary_unary(f"/any.Service/{method}")(request, timeout=timeout, metadata=metadata)
        return answer

    def status(self, **arguments: Any) -> grpc.StatusCode:
        with pytest.raises(grpc.RpcError) as caught:
            self.call(**arguments)
        status: grpc.StatusCode = caught.value.code()  # type: ignore[attr-defined]
        return status


class FakeProcesses:
    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.signalled = threading.Semaphore(0)

    def _note(self, what: str, name: str) -> None:
        self.done.append((what, name))
        self.signalled.release()

    def kill(self, name: str) -> None:
        self._note("kill", name)

    def freeze(self, name: str) -> None:
        self._note("freeze", name)

    def resume(self, name: str) -> None:
        self._note("resume", name)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def upstream(echo: Echo) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[echo])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    echo.gate.set()
    server.stop(None)


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[JumpClock]:
    clock = JumpClock(OffsetFile(tmp_path / "clock"))
    yield clock
    clock.stop()


@pytest.fixture
def processes() -> FakeProcesses:
    return FakeProcesses()


@pytest.fixture
def wired(upstream: str, clock: JumpClock, processes: FakeProcesses) -> Iterator[Callable[..., Caller]]:
    """A caller behind a wire with these faults."""
    wires: list[GrpcWire] = []
    callers: list[Caller] = []

    def make(*faults: Fault, plan: Plan | None = None) -> Caller:
        wires.append(GrpcWire(upstream, "step", "firestore", plan or Plan(faults), clock, processes))
        callers.append(Caller(wires[-1].start()))
        return callers[-1]

    yield make
    for caller in callers:
        caller.channel.close()
    for wire in wires:
        wire.stop()


Wired = Callable[..., Caller]


def test_a_call_without_faults_passes_unchanged(wired: Wired, echo: Echo) -> None:
    caller = wired()
    stub = caller.channel.unary_unary("/any.Service/Do")
    answer, call = stub.with_call(b"\x00raw", timeout=50, metadata=(("k", "v"), ("b-bin", b"\x00")))
    assert answer == b"\x00raw"
    assert ("after", "wards") in call.trailing_metadata()
    assert echo.metadata[0]["k"] == "v"
    assert echo.metadata[0]["b-bin"] == b"\x00"
    assert echo.remaining[0] is not None
    assert 0 < echo.remaining[0] <= 50


def test_no_deadline_is_passed_on_as_none(wired: Wired, echo: Echo) -> None:
    wired().call()
    assert echo.remaining[0] is None or echo.remaining[0] > FOREVER


def test_streamed_answers_pass(wired: Wired) -> None:
    assert list(wired().channel.unary_stream("/any.Service/Many")(b"m")) == [b"m"] * 3


def test_status_details_and_trailers_pass(wired: Wired) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        wired().call(method="Refuse")
    error: Any = caught.value
    assert (error.code(), error.details()) == (grpc.StatusCode.ABORTED, "no: é")
    assert ("grpc-status-details-bin", b"why") in error.trailing_metadata()


def test_the_plan_sees_caller_callee_method_and_body(wired: Wired) -> None:
    plan = Plan()
    wired(plan=plan).call(b"body")
    assert [(str(call), call.body) for call in plan.calls] == [("step->firestore:Do", b"body")]


@pytest.mark.parametrize(("code", "seen"), [(None, "UNAVAILABLE"), ("ABORTED", "ABORTED")])
def test_lose_request_never_arrives(wired: Wired, echo: Echo, code: str | None, seen: str) -> None:
    caller = wired(Fault(Action.LOSE_REQUEST, code=code, nth=2))
    caller.call(b"1")
    assert caller.status(request=b"2").name == seen
    caller.call(b"3")
    assert echo.requests == [b"1", b"3"]


@pytest.mark.parametrize(("code", "seen"), [(None, "UNAVAILABLE"), ("INTERNAL", "INTERNAL")])
def test_lose_answer_is_carried_out(wired: Wired, echo: Echo, code: str | None, seen: str) -> None:
    assert wired(Fault(Action.LOSE_ANSWER, code=code)).status().name == seen
    assert echo.requests == [b"x"]


def test_twice_delivers_twice_and_answers_once(wired: Wired, echo: Echo) -> None:
    assert wired(Fault(Action.TWICE)).call() == b"x"
    for _ in range(2):
        assert echo.arrived.acquire(timeout=EVENT_SECONDS)
    assert echo.requests == [b"x"] * 2


def test_again_delivers_after_the_answer(wired: Wired, echo: Echo) -> None:
    caller = wired(Fault(Action.AGAIN))
    assert caller.call() == b"x"
    for _ in range(2):
        assert echo.arrived.acquire(timeout=EVENT_SECONDS)


def test_delay_waits_on_the_clock(wired: Wired, clock: JumpClock) -> None:
    before = clock.now()
    with clock.busy():  # the caller's process, as the front counts it
        assert wired(Fault(Action.DELAY, seconds=300)).call(timeout=600) == b"x"
    assert clock.now() - before >= 300


def test_a_delay_beyond_the_deadline_ends_there_and_arrives_later(wired: Wired, echo: Echo, clock: JumpClock) -> None:
    before = clock.now()
    with clock.busy():
        assert wired(Fault(Action.DELAY, seconds=300)).status(timeout=50).name == "DEADLINE_EXCEEDED"
    assert clock.now() - before >= 49
    assert echo.arrived.acquire(timeout=EVENT_SECONDS)
    assert clock.now() - before >= 300


def test_delay_answer_is_carried_out_at_once(wired: Wired, echo: Echo, clock: JumpClock) -> None:
    with clock.busy():
        assert wired(Fault(Action.DELAY_ANSWER, seconds=100)).status(timeout=30).name == "DEADLINE_EXCEEDED"
    assert echo.requests == [b"x"]


def test_late_fails_now_and_lands_afterwards(wired: Wired, echo: Echo, clock: JumpClock) -> None:
    before = clock.now()
    with clock.busy():
        assert wired(Fault(Action.LATE, seconds=500, code="DEADLINE_EXCEEDED")).status().name == "DEADLINE_EXCEEDED"
        assert echo.requests == []
    assert echo.arrived.acquire(timeout=EVENT_SECONDS)
    assert clock.now() - before >= 500


def test_hang_lasts_until_the_callers_deadline(wired: Wired, echo: Echo, clock: JumpClock) -> None:
    before = clock.now()
    with clock.busy():
        assert wired(Fault(Action.HANG)).status(timeout=60).name == "DEADLINE_EXCEEDED"
    assert clock.now() - before >= 59
    assert echo.requests == []


def test_hang_without_a_deadline_lasts_until_the_caller_gives_up(wired: Wired, echo: Echo) -> None:
    plan = Plan([Fault(Action.HANG)])
    caller = wired(plan=plan)
    call = caller.channel.unary_unary("/any.Service/Do").future(b"h")
    until = time.monotonic() + EVENT_SECONDS
    while not plan.injected and time.monotonic() < until:
        time.sleep(0.001)
    assert plan.injected
    assert not call.done()
    call.cancel()
    assert caller.call(b"next") == b"next"
    assert echo.requests == [b"next"]


def test_drop_cuts_every_connection_of_the_caller(wired: Wired, echo: Echo) -> None:
    caller = wired(Fault(Action.DROP, method="Drop"))
    echo.gate.clear()
    other = caller.channel.unary_unary("/any.Service/Do").future(b"under way")
    assert echo.arrived.acquire(timeout=EVENT_SECONDS)
    dropped = caller.channel.unary_unary("/any.Service/Drop").future(b"dropped")
    assert echo.arrived.acquire(timeout=EVENT_SECONDS)
    echo.gate.set()
    assert dropped.exception(EVENT_SECONDS).code().name == "UNAVAILABLE"
    assert other.exception(EVENT_SECONDS) is None or other.exception().code().name == "UNAVAILABLE"
    assert echo.requests == [b"under way", b"dropped"]
    assert Caller(caller.address).call(b"after") == b"after"


def test_drop_breaks_a_call_that_is_still_under_way(wired: Wired, echo: Echo) -> None:
    caller = wired(Fault(Action.DROP, method="Refuse"))
    echo.gate.clear()
    other = caller.channel.unary_unary("/any.Service/Do").future(b"under way")
    assert echo.arrived.acquire(timeout=EVENT_SECONDS)
    assert caller.status(method="Refuse").name == "UNAVAILABLE"
    assert other.exception(EVENT_SECONDS).code().name == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("action", "arrived", "signals"),
    [
        (Action.KILL_BEFORE, 0, [("kill", "step")]),
        (Action.KILL_AFTER, 1, [("kill", "step")]),
        (Action.KILL_CALLEE, 1, [("kill", "firestore")]),
    ],
)
def test_kills(
    wired: Wired, echo: Echo, processes: FakeProcesses, action: Action, arrived: int, signals: list[tuple[str, str]]
) -> None:
    assert wired(Fault(action)).status().name == "UNAVAILABLE"
    assert processes.done == signals
    assert len(echo.requests) == arrived


def test_freeze_stops_the_caller_before_the_answer_and_continues_it(
    wired: Wired, echo: Echo, processes: FakeProcesses, clock: JumpClock
) -> None:
    before = clock.now()
    assert wired(Fault(Action.FREEZE, seconds=200)).call() == b"x"
    assert processes.done == [("freeze", "step"), ("resume", "step")]
    assert clock.now() - before >= 200
    assert echo.requests == [b"x"]


def test_a_kill_without_processes_says_so(upstream: str) -> None:
    wire = GrpcWire(upstream, "a", "b", Plan([Fault(Action.KILL_BEFORE)]), SystemClock())
    caller = Caller(wire.start())
    assert caller.status().name == "INTERNAL"
    caller.channel.close()
    wire.stop()


def test_two_faults_on_one_call_apply_in_their_order(wired: Wired, echo: Echo) -> None:
    caller = wired(Fault(Action.LOSE_ANSWER, code="ABORTED"), Fault(Action.TWICE))
    assert caller.status().name == "ABORTED"
    for _ in range(2):
        assert echo.arrived.acquire(timeout=EVENT_SECONDS)


def test_a_stopped_callee_is_unavailable(clock: JumpClock) -> None:
    wire = GrpcWire("127.0.0.1:1", "a", "b", Plan(), clock)
    caller = Caller(wire.start())
    assert caller.status().name == "UNAVAILABLE"
    caller.channel.close()
    wire.stop()
