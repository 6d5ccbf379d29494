"""The emulators' clock: real time plus an offset, so that waiting can be skipped.

Every emulator takes a `Clock`. In `local` it is the system's. `demo`, `prove` and tests use a `JumpClock`: while a call
is in flight time passes as it does; when every part of the chain only waits, time jumps to the next moment at which
somebody wakes. A lease of five minutes or a retry after an hour is then tried in milliseconds, and no order of
events appears that could not happen in real time.

Who *works* on a call is busy; who *waits* for another's answer is not: a client waits with `sleep(timeout,
wake=answered)` and leaves it to the server to be busy. What a function process does is known to the front alone, which
holds a mark from the arrival of a request until the body has ended, whether its caller still listens or not.

The offset lies in a file of eight bytes (signed microseconds, little-endian, mapped by every emulator process), so
the Firestore child reads the same time as the rest without a message.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol


class Hold(Protocol):
    """Work in flight that belongs to no thread: `on` and `off` may come from any, and repeat."""

    def on(self) -> None: ...

    def off(self) -> None: ...


class Clock(Protocol):
    """Seconds since the epoch, and ways to wait on that scale."""

    def now(self) -> float: ...

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> bool:
        """Wait; True if `wake` was set before the time was over. The caller's own `busy` is set aside meanwhile."""
        ...

    def busy(self) -> AbstractContextManager[None]:
        """Work is in flight in this thread: time does not jump meanwhile."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """One of the others who are busy only waits for us: a wire that keeps a process waiting on purpose."""
        ...

    def hold(self) -> Hold:
        """A mark like `busy`, off at first, that any thread may switch."""
        ...


class _NoHold:
    def on(self) -> None: ...

    def off(self) -> None: ...


class SystemClock:
    """Real time."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> bool:
        if wake is None:
            time.sleep(max(0.0, seconds))
            return False
        return wake.wait(max(0.0, seconds))

    @contextmanager
    def busy(self) -> Iterator[None]:
        yield

    @contextmanager
    def waiting(self) -> Iterator[None]:
        yield

    def hold(self) -> Hold:
        return _NoHold()


class OffsetFile:
    """The offset shared between processes; 0 microseconds when new."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("<q", 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)

    def read(self) -> int:
        """Microseconds."""
        return int(struct.unpack_from("<q", self._map)[0])

    def write(self, microseconds: int) -> None:
        struct.pack_into("<q", self._map, 0, microseconds)


class OffsetClock(SystemClock):
    """Real time plus the shared offset: what a child process reads."""

    def __init__(self, offset: OffsetFile) -> None:
        self._offset = offset

    def now(self) -> float:
        return time.time() + self._offset.read() / 1e6


class _Sleeper:
    """One thread that waits for `deadline`; `fired` is set by the jump that reaches it."""

    def __init__(self, deadline: float, wake: threading.Event | None) -> None:
        self.deadline = deadline
        self.wake = wake
        self.fired = threading.Event()


class _JumpHold:
    def __init__(self, clock: JumpClock) -> None:
        self._clock = clock
        self._on = False

    def on(self) -> None:
        with self._clock._state:
            if not self._on:
                self._on = True
                self._clock._count(1)

    def off(self) -> None:
        with self._clock._state:
            if self._on:
                self._on = False
                self._clock._count(-1)


class JumpClock(OffsetClock):
    """Time that jumps to the next sleeper's deadline once nothing has been in flight for `quiet` real seconds.

    The quiet time covers the moments between a thread's two marks, such as a request between its client and its
    server. A sleeper that a jump has reached counts as in flight until it has left `sleep`, so that whoever wakes first
    acts before time goes on. A jump that comes too early on a slow machine is an order of events that a slow call
    could have made as well: nothing impossible is seen.
    """

    POLL = 0.02
    """Real seconds after which a sleeper with an event of its own notices a jump."""

    PATIENCE = 4
    """Quiet times to wait for, where the end of one comes late: then other threads wait for the processor as well."""

    def __init__(self, offset: OffsetFile, quiet: float = 0.03) -> None:
        super().__init__(offset)
        self.jumps = 0
        self._quiet = quiet
        self._state = threading.Condition()
        self._marks = 0
        self._changes = 0
        self._sleepers: set[_Sleeper] = set()
        self._own = threading.local()
        self._stopped = False
        self._parked = False
        self._driver = threading.Thread(target=self._drive, name="clock", daemon=True)
        self._driver.start()

    def set(self, now: float) -> None:
        """Set the time (seconds since the epoch), before anything sleeps on it."""
        self._offset.write(round((now - time.time()) * 1e6))

    def stop(self) -> None:
        """End the jumps: time goes on at its own pace."""
        with self._state:
            self._stopped = True
            self._state.notify_all()
        self._driver.join()

    def in_flight(self) -> int:
        """How many works are in flight; 0 or less is none."""
        with self._state:
            return self._marks

    @contextmanager
    def busy(self) -> Iterator[None]:
        self._mark(1)
        try:
            yield
        finally:
            self._mark(-1)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        with self._state:
            self._count(-1)
        try:
            yield
        finally:
            with self._state:
                self._count(1)

    def hold(self) -> Hold:
        return _JumpHold(self)

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> bool:
        sleeper = _Sleeper(self.now() + max(0.0, seconds), wake)
        own = self._depth()
        with self._state:
            self._sleepers.add(sleeper)
            self._count(-own)
        try:
            self._wait(sleeper)
        finally:
            with self._state:
                self._sleepers.discard(sleeper)
                self._count(own - sleeper.fired.is_set())  # a jump has counted who it woke
        return wake is not None and wake.is_set()

    def _wait(self, sleeper: _Sleeper) -> None:
        """Until the time or the event has come, whether by a jump or by itself."""
        while not sleeper.fired.is_set() and (left := sleeper.deadline - self.now()) > 0:
            if sleeper.wake is None:
                sleeper.fired.wait(min(left, 3600.0))
            elif sleeper.wake.wait(min(left, self.POLL)):
                return

    def _depth(self) -> int:
        return getattr(self._own, "depth", 0)

    def _mark(self, change: int) -> None:
        self._own.depth = self._depth() + change
        with self._state:
            self._count(change)

    def _count(self, change: int) -> None:
        """With the state's lock held. Wakes the driver if it waits for the end of all work."""
        self._marks += change
        self._changes += 1
        if self._parked and self._marks <= 0 and self._sleepers:
            self._state.notify_all()

    def _drive(self) -> None:
        seen, waited = -1, 0
        with self._state:
            while not self._stopped:
                if self._marks > 0 or not self._sleepers:
                    self._parked = True
                    self._state.wait()
                    self._parked = False
                    continue
                if seen != self._changes:
                    seen, waited = self._changes, 0
                since = time.monotonic()
                self._state.wait(self._quiet)
                if seen != self._changes or self._stopped or self._awake():
                    continue
                waited += 1
                if time.monotonic() - since < self._quiet * 1.5 or waited == self.PATIENCE:
                    waited = 0
                    self._jump()

    def _awake(self) -> bool:
        """Somebody's event is set, or time is up: that thread is about to go on."""
        now = self.now()
        return any((s.wake is not None and s.wake.is_set()) or s.deadline <= now for s in self._sleepers)

    def _jump(self) -> None:
        asleep = [sleeper for sleeper in self._sleepers if not sleeper.fired.is_set()]
        target = min(sleeper.deadline for sleeper in asleep)
        ahead = target - self.now()
        if ahead > 0:
            self._offset.write(self._offset.read() + int(ahead * 1e6) + 1)
            self.jumps += 1
        for sleeper in asleep:
            if sleeper.deadline <= target:
                sleeper.fired.set()
                self._count(1)
