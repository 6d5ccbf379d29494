"""Faults as data: what goes wrong, on which call, and how often.

A *call* goes over one hop of the chain: ``caller -> callee`` with a method. Names of callers and callees are the
names of the parts: ``scheduler``, ``proxy``, ``workflows``, ``firestore``, a step's name, a receiver's name. The
method is the RPC (``Commit``, ``CreateExecution``) or the HTTP verb (``POST``).

The front, the gRPC wire and the receivers ask one `Plan` at each call and carry out what it answers. A plan is
thread-safe and counts calls itself, so that the nth call is the nth as the wire sees it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Protocol


class Action(StrEnum):
    """What happens to a call."""

    LOSE_REQUEST = "lose_request"  # never forwarded; the caller sees a broken connection (or `code`)
    LOSE_ANSWER = "lose_answer"  # forwarded and carried out; the caller sees a broken connection (or `code`)
    TWICE = "twice"  # delivered twice at once; the caller gets the first answer
    AGAIN = "again"  # delivered a second time once the first has been answered
    DELAY = "delay"  # forwarded after `seconds`
    DELAY_ANSWER = "delay_answer"  # carried out at once, answered after `seconds`
    LATE = "late"  # the caller gets an error now; the call is carried out after `seconds`
    HANG = "hang"  # never forwarded, never answered (the caller's own deadline ends it)
    DROP = "drop"  # carried out, then every connection of the caller is cut
    KILL_BEFORE = "kill_before"  # the caller's process is killed (SIGKILL) before the call is forwarded
    KILL_AFTER = "kill_after"  # the call is carried out, then the caller's process is killed
    KILL_CALLEE = "kill_callee"  # the callee's process is killed while it works on the call
    FREEZE = "freeze"  # the caller's process is stopped (SIGSTOP) before the answer, continued after `seconds`


@dataclass(frozen=True)
class Call:
    """One call over one hop."""

    caller: str
    callee: str
    method: str
    body: bytes = field(default=b"", repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.caller}->{self.callee}:{self.method}"


@dataclass(frozen=True)
class Fault:
    """One fault: `caller`, `callee` and `method` are shell patterns (``*`` matches any).

    `nth` counts matching calls from 1; the fault holds for `times` calls from there on. `code` is a gRPC status name
    (``UNAVAILABLE``) on a gRPC hop and an HTTP status on an HTTP hop; None is a broken connection. `seconds` are on
    the emulators' clock.
    """

    action: Action
    caller: str = "*"
    callee: str = "*"
    method: str = "*"
    nth: int = 1
    times: int = 1
    code: str | int | None = None
    seconds: float = 0.0

    def matches(self, call: Call) -> bool:
        return (
            fnmatchcase(call.caller, self.caller)
            and fnmatchcase(call.callee, self.callee)
            and fnmatchcase(call.method, self.method)
        )

    def once(self) -> Fault:
        return replace(self, times=1)

    def __str__(self) -> str:
        code = "" if self.code is None else f" ({self.code})"
        return f"{self.action.value}{code} at {self.caller}->{self.callee}:{self.method} call {self.nth}"


class Processes(Protocol):
    """The processes by the names of faults.py; each call raises KeyError for a part that has no process of its own."""

    def kill(self, name: str) -> None: ...

    def freeze(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...


class Plan:
    """The faults that are still to happen, and the calls that were seen."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = list(faults)
        self._seen: dict[int, int] = {}
        self.injected: list[tuple[Fault, Call]] = []
        self.calls: list[Call] = []

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._faults.extend(faults)

    def clear(self) -> None:
        """Forget faults and counts."""
        with self._lock:
            self._faults.clear()
            self._seen.clear()
            self.injected.clear()
            self.calls.clear()

    def at(self, call: Call) -> list[Fault]:
        """Count this call; the faults that happen to it, in the order they were added."""
        with self._lock:
            self.calls.append(call)
            found = []
            for index, fault in enumerate(self._faults):
                if not fault.matches(call):
                    continue
                count = self._seen.get(index, 0) + 1
                self._seen[index] = count
                if fault.nth <= count < fault.nth + fault.times:
                    found.append(fault)
                    self.injected.append((fault, call))
            return found

    def count(self, caller: str) -> int:
        """How many calls `caller` has made so far."""
        with self._lock:
            return sum(call.caller == caller for call in self.calls)

    def pending(self) -> list[Fault]:
        """Faults that have not happened as often as they should."""
        with self._lock:
            return [
                fault
                for index, fault in enumerate(self._faults)
                if self._seen.get(index, 0) < fault.nth + fault.times - 1
            ]
