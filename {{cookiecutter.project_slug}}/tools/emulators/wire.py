"""A gRPC wire between one caller and one callee that carries out the faults of a plan (see faults.py for each).

    caller --tcp--> front --tcp--> relay (raw bytes, any service) --grpc--> upstream

The relay passes on messages, metadata, deadlines and the status with its details, unread. The front before it knows
the caller's connections and can cut them, which no gRPC server lets its user do. One wire serves one caller process, so
that the caller is known without asking it.

A call has one request message and any number of answers: every RPC of Firestore, Workflows and Workflow Executions that
the chain uses. (A call that streams its requests is passed on with its first message only.)

Where a fault outlasts the caller's deadline, the caller gets DEADLINE_EXCEEDED when its time is over *on the emulators'
clock*: behind a clock that jumps, the caller's own timer would take real time to notice.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc

from tools.emulators.clock import Clock
from tools.emulators.faults import Action, Call, Fault, Plan, Processes

WORKERS = 128
"""Calls of one caller at a time; further ones queue."""

MAX_MESSAGE = ("grpc.max_receive_message_length", -1)
CHANNEL_OPTIONS = (
    MAX_MESSAGE,
    # A callee that was killed and started again is found within half a second.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # One connection a wire, so that one caller's connection trouble is its own.
    ("grpc.use_local_subchannel_pool", 1),
)

FOREVER = 10 * 365 * 86_400.0
"""Seconds beyond which a deadline is none."""

OF_THE_TRANSPORT = ("user-agent", "te", "content-type")
"""Metadata that gRPC sets anew on each hop."""

Metadata = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True)
class Answer:
    """What a call came to: messages, then a status (`code` None is OK)."""

    messages: tuple[bytes, ...] = ()
    code: grpc.StatusCode | None = None
    details: str = ""
    trailing: Metadata = ()


Deliver = Callable[[], Answer]


@dataclass(frozen=True)
class _Caller:
    """Who waits for the answer: `deadline` is on the emulators' clock, `gone` is set when nobody waits any more."""

    deadline: float
    gone: threading.Event


class GrpcWire:
    """Relays every call of `caller` to `callee` at `upstream` (host:port), under the faults of `plan`.

    `processes` carries out kills and freezes; a fault that needs it and finds None answers INTERNAL.
    """

    def __init__(
        self, upstream: str, caller: str, callee: str, plan: Plan, clock: Clock, processes: Processes | None = None
    ) -> None:
        self._upstream = upstream
        self._caller = caller
        self._callee = callee
        self._plan = plan
        self._clock = clock
        self._processes = processes

    def start(self, port: int = 0) -> str:
        """The address (host:port) to give to the caller. Raises OSError if `port` (0: any free one) is in use."""
        self._front = _Front()
        address = self._front.listen(port)
        self._channel = grpc.insecure_channel(self._upstream, options=CHANNEL_OPTIONS)
        self._server = grpc.server(
            futures.ThreadPoolExecutor(WORKERS, thread_name_prefix=f"wire-{self._caller}"),
            handlers=[_Relay(self._serve)],
            options=[MAX_MESSAGE],
        )
        relay = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self._front.start(relay)
        return address

    def stop(self) -> None:
        """Cut every connection; calls under way go on to their end but are answered to nobody."""
        self._front.stop()
        self._server.stop(None).wait()
        self._channel.close()

    def _serve(self, path: str, request: bytes, context: Any) -> Iterator[bytes]:
        """One call as the relay's server got it: `path` is /package.Service/Method."""
        gone = threading.Event()
        context.add_callback(gone.set)
        remaining = _time_remaining(context)
        caller = _Caller(math.inf if remaining is None else self._clock.now() + remaining, gone)
        call = Call(self._caller, self._callee, path.rsplit("/", 1)[1], request)
        deliver = self._upstream_call(path, request, _passed_on(context.invocation_metadata()), remaining)
        for fault in reversed(self._plan.at(call)):
            deliver = self._wrap(fault, call, caller, deliver)
        answer = deliver()
        context.set_trailing_metadata(tuple(answer.trailing))
        yield from answer.messages
        if answer.code is not None:
            context.abort(answer.code, answer.details)

    def _upstream_call(self, path: str, request: bytes, metadata: Metadata, timeout: float | None) -> Deliver:
        """Each delivery has the caller's whole time: one that starts late must not fail for that alone."""
        method = self._channel.unary_stream(path)

        def deliver() -> Answer:
            try:
                call = method(request, metadata=metadata, timeout=timeout)
                return Answer(tuple(call), trailing=_passed_on(call.trailing_metadata()))
            except grpc.RpcError as error:
                failed: Any = error  # every one that a call raises is also that call
                return Answer((), failed.code(), failed.details() or "", _passed_on(failed.trailing_metadata()))

        return deliver

    def _wrap(self, fault: Fault, call: Call, caller: _Caller, deliver: Deliver) -> Deliver:
        return lambda: self._apply(fault, call, caller, deliver)

    def _apply(self, fault: Fault, call: Call, caller: _Caller, deliver: Deliver) -> Answer:
        match fault.action:
            case Action.LOSE_REQUEST:
                return _injected(fault)
            case Action.LOSE_ANSWER:
                deliver()
                return _injected(fault)
            case Action.TWICE:
                return self._twice(deliver)
            case Action.AGAIN:
                answer = deliver()
                self._background(deliver)
                return answer
            case Action.DELAY:
                return self._delay(fault.seconds, caller, deliver)
            case Action.DELAY_ANSWER:
                answer = deliver()
                return answer if self._wait(fault.seconds, caller) else _TOO_LATE
            case Action.LATE:
                self._background(deliver, fault.seconds)
                return _injected(fault)
            case Action.HANG:
                self._wait(math.inf, caller)
                return _TOO_LATE
            case Action.DROP:
                deliver()
                self._front.cut()
                return _BROKEN
            case Action.KILL_BEFORE:
                return self._signal("kill", call.caller)
            case Action.KILL_AFTER:
                deliver()
                return self._signal("kill", call.caller)
            case Action.KILL_CALLEE:
                return self._kill_at_work(call, deliver)
            case Action.FREEZE:
                return self._freeze(fault.seconds, call, deliver)

    def _twice(self, deliver: Deliver) -> Answer:
        first: futures.Future[Answer] = futures.Future()

        def run() -> Answer:
            answer = deliver()
            with contextlib.suppress(futures.InvalidStateError):
                first.set_result(answer)
            return answer

        for _ in range(2):
            self._background(run)
        return first.result()

    def _delay(self, seconds: float, caller: _Caller, deliver: Deliver) -> Answer:
        """Where the delay outlasts the deadline the caller hears so in time, and the call still arrives."""
        over = self._clock.now() + seconds - caller.deadline
        if over <= 0:
            self._wait(seconds, caller)
            return deliver()
        self._background(deliver, seconds)
        self._wait(seconds, caller)
        return _TOO_LATE

    def _kill_at_work(self, call: Call, deliver: Deliver) -> Answer:
        """The call is on its way when the callee dies: whether it took effect is open, as it is in life."""
        working = self._background(deliver)
        killed = self._signal("kill", call.callee)
        answer = working.result()
        return killed if answer.code is None else answer

    def _freeze(self, seconds: float, call: Call, deliver: Deliver) -> Answer:
        answer = deliver()
        failure = self._signal("freeze", call.caller)
        if failure is not _BROKEN:
            return failure
        with self._clock.busy():
            self._clock.sleep(seconds)
            self._signal("resume", call.caller)
        return answer

    def _signal(self, what: str, name: str) -> Answer:
        """_BROKEN when done: a process that dies breaks its connections."""
        if self._processes is None:
            return Answer((), grpc.StatusCode.INTERNAL, f"this wire has no processes to {what}")
        try:
            getattr(self._processes, what)(name)
        except KeyError:
            return Answer((), grpc.StatusCode.INTERNAL, f"{name!r} has no process to {what}")
        return _BROKEN

    def _wait(self, seconds: float, caller: _Caller) -> bool:
        """Keep the caller waiting; False if its time is over, or it has gone, before `seconds` have passed.

        The caller counts as work in flight, but now it only waits for us.
        """
        left = caller.deadline - self._clock.now()
        with self._clock.waiting():
            if math.isinf(min(seconds, left)):
                return not caller.gone.wait()
            return not self._clock.sleep(min(seconds, left), caller.gone) and seconds <= left

    def _background(self, deliver: Deliver, seconds: float = 0.0) -> futures.Future[Answer]:
        """Deliver after `seconds` on the clock, whatever becomes of the caller."""
        done: futures.Future[Answer] = futures.Future()

        def run() -> None:
            with self._clock.busy():
                if seconds:
                    self._clock.sleep(seconds)
                try:
                    done.set_result(deliver())
                except BaseException as error:  # the waiting thread raises it; without one, the wire has stopped
                    done.set_exception(error)

        threading.Thread(target=run, name=f"wire-{self._caller}-late", daemon=True).start()
        return done


class _Relay(grpc.GenericRpcHandler):
    """Takes every method of every service, with raw bytes."""

    def __init__(self, serve: Callable[[str, bytes, Any], Iterator[bytes]]) -> None:
        self._serve = serve

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        return grpc.unary_stream_rpc_method_handler(lambda request, context: self._serve(path, request, context))


class _Front:
    """Forwards TCP connections to a local port and can cut them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()

    def listen(self, port: int) -> str:
        self._listener = socket.create_server(("127.0.0.1", port))
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self, relay: int) -> None:
        """Forward what comes, and has come, to this port."""
        threading.Thread(target=self._accept, args=(relay,), name="wire-front", daemon=True).start()

    def cut(self) -> None:
        """Close every connection under whatever is going over it."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self, port: int) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            relay = socket.create_connection(("127.0.0.1", port))
            for connection in (caller, relay):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(caller)
            pumps = [
                threading.Thread(target=_pump, args=ends, name="wire-pump", daemon=True)
                for ends in ((caller, relay), (relay, caller))
            ]
            for pump in pumps:
                pump.start()
            threading.Thread(target=self._close, args=(pumps, caller, relay), name="wire-close", daemon=True).start()

    def _close(self, pumps: list[threading.Thread], *ends: socket.socket) -> None:
        for pump in pumps:
            pump.join()
        with self._lock:
            self._connections -= set(ends)
        for end in ends:
            end.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until either end closes, then close both directions."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


_BROKEN = Answer((), grpc.StatusCode.UNAVAILABLE, "Socket closed")
"""What the client's library reports for a connection that breaks under a call."""

_TOO_LATE = Answer((), grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


def _time_remaining(context: Any) -> float | None:
    """Seconds; None without a deadline, for which the library answers with centuries that it does not take back."""
    remaining: float | None = context.time_remaining()
    return None if remaining is None or remaining > FOREVER else remaining


def _injected(fault: Fault) -> Answer:
    if fault.code is None:
        return _BROKEN
    return Answer((), grpc.StatusCode[str(fault.code)], "injected")


def _passed_on(metadata: Any) -> Metadata:
    return tuple(
        (key, value)
        for key, value in metadata or ()
        if key not in OF_THE_TRANSPORT
        and not key.startswith(":")
        and (not key.startswith("grpc-") or key == "grpc-status-details-bin")
    )
