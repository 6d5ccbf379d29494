"""What a body gets to know of its run, and can do with its lease."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from .errors import LeaseLost, StoreError
from .identity import Kind, RunContext, idempotency_key
from .records import Status

if TYPE_CHECKING:
    from .log import Log
    from .protocol import Claim, Protocol


class Lease:
    """An external attempt's hold on its record."""

    def __init__(self, protocol: Protocol, claim: Claim, limit: float, log: Log, *, marks: bool) -> None:
        self.protocol = protocol
        self.claim = claim
        self.limit = limit
        self.log = log
        self.marks = marks
        self.marked = False
        self.lost = threading.Event()

    def left(self) -> float:
        return self.claim.lease_seconds - (self.protocol.host.monotonic() - self.claim.since)

    def extend(self, seconds: float) -> float:
        with self._noticing():
            left = self.protocol.extend(self.claim, seconds, self.limit)
        self.log("step.extended", left=round(left, 1))
        return left

    def check(self) -> None:
        if self.lost.is_set():
            raise LeaseLost("another attempt has taken over")
        with self._noticing():
            self.protocol.check(self.claim)

    def mark_started(self) -> None:
        written = {"status": Status.IN_PROGRESS.value, "started": self.claim.attempt_id}
        with self._noticing():
            self.protocol.settle(self.claim, written, (Status.IN_PROGRESS,))
        self.marked = True

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except LeaseLost:
            self.lost.set()
            raise


class Run:
    """The run, step and attempt that a body works for. The business date is `slot`, never the clock."""

    def __init__(
        self, context: RunContext, step: str, item: str | None, attempt: int, lease: Lease | None = None
    ) -> None:
        self.context = context
        self.step = step
        self.item = item
        """The caller's name of this element of a fan-out, if there is one."""
        self.attempt = attempt
        """1 for the first; more means that the effect may have been tried before, with the same `idempotency_key`."""
        self.idempotency_key = idempotency_key(context.run_id, step, item)
        """64 hex digits, the same in every attempt: send it with the effect."""
        self._lease = lease

    @property
    def run_id(self) -> str:
        return self.context.run_id

    @property
    def pipeline(self) -> str:
        return self.context.pipeline

    @property
    def slot(self) -> datetime | None:
        """The scheduled instant, UTC; None for a manual run without one."""
        return self.context.slot

    @property
    def local(self) -> datetime | None:
        """The same instant in the schedule's time zone."""
        return self.context.local

    @property
    def kind(self) -> Kind:
        """`schedule`, `forced` (its slot is still to come) or `manual`."""
        return self.context.kind

    @property
    def job(self) -> str:
        return self.context.job

    @property
    def key(self) -> str:
        return self.context.key

    def remaining(self) -> float:
        """Seconds of the lease, at least (measured from before the claim was sent). A socket's time-out lies below
        it.
        """
        return self._held().left()

    def still_held(self) -> bool:
        """Whether this attempt still holds its record: one read. Raises StoreError if Firestore does not answer."""
        try:
            self._held().check()
        except LeaseLost:
            return False
        return True

    def extend(self, seconds: float) -> float:
        """Let the lease run `seconds` from now; the seconds it now has left, at least.

        It never reaches beyond the claim + the function's time-out + 30 s. Raises LeaseLost at once when another
        attempt has taken over, StoreError if Firestore does not answer.
        """
        return self._held().extend(seconds)

    @contextmanager
    def keep_alive(self, seconds: float | None = None) -> Iterator[None]:
        """Extend the lease by `seconds` (default: as long as it was at the claim) again and again, in a thread.

        For a short lease, which recovers sooner from a crash. Raises LeaseLost at the end if the lease was lost
        meanwhile; `still_held` tells at once. The thread has ended when the context is left. Raises ValueError for
        `seconds` that are not above 0.
        """
        lease = self._held()
        span = lease.claim.lease_seconds if seconds is None else seconds
        if not span > 0:
            raise ValueError(f"keep_alive({seconds!r}): the seconds have to be above 0")
        wait = lease.protocol.host.wait
        done = threading.Event()

        def keep() -> None:
            while not wait(done, span / 3) and not lease.lost.is_set():
                try:
                    lease.extend(span)
                except LeaseLost:
                    return
                except StoreError:
                    continue  # the next round tries again; an unextended lease runs out by itself

        keeper = threading.Thread(target=keep, name="keep-alive", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()
        if lease.lost.is_set():
            raise LeaseLost("another attempt has taken over")

    def starting(self) -> None:
        """Mark the point of no return: one more write, just before the effect.

        For a step declared with `marks_start=True`. Until the mark is made, an attempt that vanishes has done nothing,
        so the next one runs even under `on_unknown="hold"`. Raises LeaseLost, StoreError: then do not begin.
        """
        lease = self._held()
        if not lease.marks:
            raise RuntimeError("run.starting() is for a step declared with marks_start=True")
        lease.mark_started()

    def _held(self) -> Lease:
        if self._lease is None:
            raise RuntimeError("a transactional step holds no lease: its commit decides")
        return self._lease
