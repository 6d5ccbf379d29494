"""Branches and iterations side by side, in threads.

The thread that meets the parallel step is the first worker; others join it as slots of the execution allow. Each worker
takes the next branch until none is left. Whoever works is busy on the clock; the first worker waits for the
others on the clock too, so that time can jump while all of them sleep.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .errors import Cancelled, WorkflowError
from .runtime import Frame

_LONG = 400 * 24 * 3600.0


def side_by_side(frame: Frame, count: int, limit: int, work: Callable[[int, Frame], None]) -> None:
    """Call `work(index, frame)` for every index below `count`, at most `limit` at once.

    `work` raises nothing but `Cancelled`. Raises Cancelled when the execution is to end.
    """
    if count:
        _Crew(frame, count, work).run(min(limit, count))


class _Crew:
    def __init__(self, frame: Frame, count: int, work: Callable[[int, Frame], None]) -> None:
        self._frame = frame
        self._slots = frame.run.slots
        self._clock = frame.run.world.clock
        self._work = work
        self._next = iter(range(count))
        self._lock = threading.Lock()
        self._helpers = 0
        self._idle = threading.Event()  # no helper is at work, and none will come
        self._failure: BaseException | None = None

    def run(self, workers: int) -> None:
        first = not self._frame.nesting
        if first:
            self._slots.request(lambda: None)  # nothing else of this execution runs yet: there is one
        requests = [self._request() for _ in range(workers - 1)]
        for request in requests:
            self._slots.request(request)
        self._take_turns()
        for request in requests:
            self._slots.withdraw(request)
        self._await_helpers()
        if first:
            self._slots.release()
        if self._failure is not None:
            raise self._failure
        self._frame.run.require_going()

    def _request(self) -> Callable[[], None]:
        return lambda: self._join()

    def _join(self) -> None:
        """A slot has been given: start a helper, which is busy before this returns."""
        with self._lock:
            self._helpers += 1
        started = threading.Event()
        threading.Thread(target=self._help, args=(started,), name="branch", daemon=True).start()
        started.wait()

    def _help(self, started: threading.Event) -> None:
        with self._clock.busy():
            started.set()
            try:
                self._take_turns()
            finally:
                self._slots.release()
                with self._lock:
                    self._helpers -= 1
                    if not self._helpers:
                        self._idle.set()

    def _take_turns(self) -> None:
        while True:
            with self._lock:
                index = next(self._next, None)
            if index is None or self._failure is not None:
                return
            try:
                self._work(index, self._frame)
            except Cancelled:
                return
            except BaseException as error:  # a fault of the emulator: it must not end as a silent thread
                self._failure = error
                self._frame.run.end(WorkflowError.of("SystemError", f"internal error: {error!r}"))
                return

    def _await_helpers(self) -> None:
        while True:
            with self._lock:
                if not self._helpers:
                    return
                self._idle.clear()
            self._clock.sleep(_LONG, self._idle)
