"""What one execution is made of while it runs: the world it is given, its frames, and its signals.

A `Frame` holds the variables of one call of a workflow, or of one branch of a parallel step, in slots that were
numbered at deploy. A step answers None to go on, or a signal: a `Jump`, `BREAK`, `CONTINUE`, or a `Result`.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..clock import Clock
from .errors import Cancelled, WorkflowError, limit_error
from .limits import Limits
from .values import Value, size


@dataclass(frozen=True)
class Auth:
    """How an HTTP call is to be authenticated: `type` is OIDC (with the audience asked for) or OAuth2."""

    type: str
    audience: str | None = None
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One HTTP call, ready to send: `query` holds strings and lists of strings; `timeout` is in seconds."""

    method: str
    url: str
    headers: dict[str, str]
    query: dict[str, str | list[str]]
    body: bytes | None
    timeout: float
    auth: Auth | None


@dataclass(frozen=True)
class Response:
    code: int
    headers: dict[str, str]
    body: bytes


class Transport(Protocol):
    """Sends HTTP calls. Follows redirects, adds tokens; raises a `TransportError` where there is no answer."""

    def request(self, request: Request) -> Response: ...


class Stop:
    """Cancels an execution: `event` wakes whoever waits on it. Thread-safe."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._lock = threading.Lock()
        self._watchers: list[Callable[[], None]] = []

    def set(self) -> None:
        with self._lock:
            watchers, self._watchers = self._watchers, []
            self.event.set()
        for watcher in watchers:
            watcher()

    def is_set(self) -> bool:
        return self.event.is_set()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` once when it is set; at once if it is."""
        with self._lock:
            if not self.event.is_set():
                self._watchers.append(watcher)
                return
        watcher()

    def unwatch(self, watcher: Callable[[], None]) -> None:
        with self._lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)


class Callbacks(Protocol):
    """Callback endpoints of this execution."""

    def create(self, method: str) -> str:
        """The URL of a new endpoint that takes `method`."""
        ...

    def wait(self, url: str, seconds: float, stop: Stop) -> Value | None:
        """What `events.await_callback` returns; None after `seconds`, or when `stop` is set. Sleeps on the clock."""
        ...


class Children(Protocol):
    """Starts executions of other workflows."""

    def run(
        self, workflow_id: str, location: str | None, project: str | None, argument: Value, seconds: float, stop: Stop
    ) -> Value:
        """The result of a new execution. Raises WorkflowError if it fails, cannot start, or outlasts `seconds`.

        Sleeps on the clock, with `stop.event` or an event of its own that `stop` sets.
        """
        ...


@dataclass(frozen=True)
class LogEntry:
    """One `sys.log`: either `text` or `data`. `timestamp` is in seconds since the epoch."""

    severity: str
    text: str | None
    data: Value
    timestamp: float
    step: str
    routine: str


@dataclass(frozen=True)
class StepEvent:
    """A step begins (IN_PROGRESS) or has ended (SUCCEEDED, FAILED); `id` is the same for both."""

    id: int
    step: str
    routine: str
    kind: str
    state: str
    time: float
    branch: str
    error: WorkflowError | None = None


@dataclass(frozen=True)
class CallEvent:
    """A call step has ended, with a result or an error."""

    name: str
    args: dict[str, Value]
    result: Value
    error: WorkflowError | None
    step: str
    routine: str
    time: float


class NoCallbacks:
    """For a place that nobody can reach."""

    def create(self, method: str) -> str:
        raise WorkflowError.of(
            "SystemError", "there are no callback endpoints here: deploy the workflow to the emulator"
        )

    def wait(self, url: str, seconds: float, stop: Stop) -> Value | None:
        raise WorkflowError.of("ValueError", f"{url} is no callback endpoint of this execution")


class NoChildren:
    """For a place where no other workflow is deployed."""

    def run(
        self, workflow_id: str, location: str | None, project: str | None, argument: Value, seconds: float, stop: Stop
    ) -> Value:
        raise WorkflowError.of(["HttpError"], f'workflow "{workflow_id}" is not deployed here', code=404)


def no_connectors(name: str, args: dict[str, Value], world: World) -> Value:
    """For a place without stand-ins."""
    raise WorkflowError.of("SystemError", f"{name} has no stand-in here")


def _forget(entry: LogEntry) -> None: ...


@dataclass
class World:
    """Everything an execution reaches outside itself."""

    clock: Clock
    transport: Transport
    random: random.Random = field(default_factory=random.Random)
    callbacks: Callbacks = field(default_factory=NoCallbacks)
    children: Children = field(default_factory=NoChildren)
    connector: Callable[[str, dict[str, Value], World], Value] = no_connectors
    log: Callable[[LogEntry], None] = _forget
    observe: Callable[[StepEvent], None] | None = None
    calls: Callable[[CallEvent], None] | None = None
    limits: Limits = field(default_factory=Limits)


class Jump:
    """Go on at the step `index` of the block `block` (compared by identity)."""

    __slots__ = ("block", "index")

    def __init__(self, block: object, index: int) -> None:
        self.block = block
        self.index = index


class Result:
    """The workflow ends with `value`."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class LoopSignal:
    """`BREAK` or `CONTINUE` of the loop around."""


BREAK = LoopSignal()
CONTINUE = LoopSignal()

Signal = Jump | Result | LoopSignal | None
StepCode = Callable[["Frame"], Signal]
ValueCode = Callable[["Frame"], Value]

UNSET: Any = object()
"""A variable that nothing has been assigned to yet."""


class Run:
    """The state of an execution that its branches share."""

    def __init__(self, world: World, env: Mapping[str, str], stop: Stop) -> None:
        self.world = world
        self.env = env
        self.stop = stop  # set by a cancellation, and by the first error that ends the whole execution
        self.limits = world.limits
        self.ends_at = world.clock.now() + world.limits.seconds
        self.fatal: WorkflowError | None = None
        self.shared = threading.RLock()  # held for one assignment to a shared variable
        self.slots = Slots(world.limits.concurrency)
        self._steps = itertools.count(1)
        self._ids = threading.Lock()
        self._memory = 0
        self.branch_errors = itertools.count(1)

    def enter(self) -> int:
        """Count a step. Raises ResourceLimitError past the limit, Cancelled when the execution is to end."""
        number = next(self._steps)
        if number > self.limits.steps:
            raise limit_error(f"the execution has taken more than {self.limits.steps} steps")
        if self.stop.event.is_set():
            raise Cancelled
        return number

    def charge(self, amount: int) -> None:
        """Count `amount` more bytes of variables (or fewer). Raises ResourceLimitError past the limit."""
        with self._ids:
            self._memory += amount
            over = amount > 0 and self._memory > self.limits.memory
        if over:
            raise limit_error(f"the variables take more than {self.limits.memory} bytes")

    def end(self, error: WorkflowError) -> None:
        """End every branch: the error cannot be caught."""
        with self._ids:
            self.fatal = self.fatal or error
        self.stop.set()

    def sleep(self, seconds: float) -> None:
        """Wait on the clock. Raises Cancelled, or ResourceLimitError when the execution may not last so long."""
        clock = self.world.clock
        left = self.ends_at - clock.now()
        if clock.sleep(min(seconds, max(left, 0.0)), self.stop.event):
            raise Cancelled
        if seconds > left:
            raise limit_error(f"the execution has lasted more than {self.limits.seconds:.0f} seconds")

    def require_going(self) -> None:
        """After a wait. Raises Cancelled when the execution is to end."""
        if self.stop.event.is_set():
            raise Cancelled

    def random_bits(self, count: int) -> int:
        with self._ids:
            return self.world.random.getrandbits(count)


class Slots:
    """How many branches may run at once; a freed slot goes to whoever asked first."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []

    def request(self, start: Callable[[], None]) -> None:
        """Call `start` with a slot, now or when one is freed."""
        with self._lock:
            if self._free <= 0:
                self._waiting.append(start)
                return
            self._free -= 1
        start()

    def withdraw(self, start: Callable[[], None]) -> bool:
        """Take a request back; False if it has got its slot."""
        with self._lock:
            if start not in self._waiting:
                return False
            self._waiting.remove(start)
            return True

    def release(self) -> None:
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            start = self._waiting.pop(0)
        start()


class Frame:
    """The variables of one call of a workflow or of one branch, whose `outer` is the frame around the parallel step."""

    __slots__ = ("branch", "depth", "nesting", "outer", "routine", "run", "sizes", "step", "values")

    def __init__(self, run: Run, routine: str, slots: int, depth: int, outer: Frame | None = None) -> None:
        self.run = run
        self.routine = routine
        self.values: list[Value] = [UNSET] * slots
        self.sizes = [0] * slots
        self.depth = depth  # of calls
        self.nesting = 0  # of parallel steps
        self.outer = outer
        self.step = ""
        self.branch = ""

    def store(self, slot: int, value: Value) -> None:
        """Assign. Raises ResourceLimitError when all variables together grow too large."""
        kind = type(value)
        amount = 8 if kind is int or kind is bool else size(value)
        if amount != self.sizes[slot]:
            self.run.charge(amount - self.sizes[slot])
            self.sizes[slot] = amount
        self.values[slot] = value

    def forget(self, slots: list[int]) -> None:
        """Unset variables that are local to a loop's iteration or a handler."""
        for slot in slots:
            if self.values[slot] is not UNSET:
                self.values[slot] = UNSET
                self.run.charge(-self.sizes[slot])
                self.sizes[slot] = 0

    def close(self) -> None:
        """Give its memory back."""
        self.run.charge(-sum(self.sizes))
