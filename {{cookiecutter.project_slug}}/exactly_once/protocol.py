"""Claim, settle, extend: compare-and-set on one record, and what to believe when an answer is lost.

Two rules carry it. *No write is believed on its answer alone*: after any answer but success the record is read, and
`attempt_id` says whose write stands there. *Every write has a precondition* (absent, or the version last seen), so a
write that lands late, after it was given up, changes nothing: whoever wrote in between has moved the version.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from .errors import Changed, Exists, LeaseLost, NotAccepted, Uncertain, Unreachable
from .records import Record, Status
from .store import SERVER_TIME, Budget, Fields, Host, Patience, Snapshot, Store, Version


@dataclass(frozen=True)
class Offer:
    """What an attempt brings to a claim."""

    attempt_id: str
    lease_seconds: float
    fields: Fields
    """Written at a first claim, beside the protocol's own."""
    may_take: Callable[[Record], bool]
    """Whether a record that is there may be taken over; it may also raise what the caller is to be answered."""
    next_fields: Callable[[Record], Fields] = lambda seen: {}
    """Written at a take-over, beside the protocol's own."""

    def first(self) -> Fields:
        return {**self.fields, **self._own(1)}

    def after(self, seen: Record) -> Fields:
        return {**self.next_fields(seen), **self._own(seen.attempts + 1)}

    def _own(self, attempts: int) -> Fields:
        return {
            "status": Status.IN_PROGRESS.value,
            "attempt_id": self.attempt_id,
            "attempts": attempts,
            "claimed_at": SERVER_TIME,
            "lease_seconds": float(self.lease_seconds),
        }


@dataclass
class Claim:
    """A record that this attempt holds, as far as it knows."""

    path: str
    attempt_id: str
    attempt: int
    version: Version
    since: float
    """`Host.monotonic` before the claim was sent: the lease ends no earlier than `lease_seconds` after it."""
    lease_seconds: float
    before: Record | None
    """What stood there, if it was taken over."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    """Held while the record is written: a keep-alive and the body may both do so."""


class Protocol:
    """The decisions on one record, each bounded by its own `Patience`."""

    def __init__(self, store: Store, host: Host, patience: Patience | None = None) -> None:
        self.store = store
        self.host = host
        self.patience = patience or Patience()

    def claim(self, path: str, offer: Offer, patience: Patience | None = None) -> Claim | Record:
        """This attempt's claim, or the record that `offer.may_take` left alone. Raises Uncertain or Unreachable."""
        budget = self._budget(patience)
        since = self.host.monotonic()
        seen: Record | None = None
        while True:
            failure: Uncertain | None = None
            try:
                if seen is None:
                    version = self.store.create(path, offer.first(), budget.rpc())
                    return Claim(path, offer.attempt_id, 1, version, since, offer.lease_seconds, None)
                version = self.store.replace(path, offer.after(seen), seen.version, budget.rpc())
                return Claim(path, offer.attempt_id, seen.attempts + 1, version, since, offer.lease_seconds, seen)
            except (Exists, Changed):
                before = seen
            except Uncertain as error:
                before, failure = seen, error
            # Somebody was faster, or it was ourselves: the answer was lost, or the write was sent twice on its way.
            seen = self.read(path, budget)
            if seen and seen.attempt_id == offer.attempt_id and seen.status is Status.IN_PROGRESS:
                return Claim(path, offer.attempt_id, seen.attempts, seen.version, since, offer.lease_seconds, before)
            if seen and not offer.may_take(seen):
                return seen
            if seen is None or failure or before:
                budget.spend(failure)

    def settle(
        self,
        claim: Claim,
        fields: Fields,
        sources: tuple[Status, ...] = (Status.IN_PROGRESS, Status.UNKNOWN),
        patience: Patience | None = None,
    ) -> None:
        """Write `fields`, `status` among them, to a record that this attempt holds.

        `sources` are the statuses it may be written from. Raises LeaseLost if the record is another's, settled
        otherwise, or absent; Uncertain or Unreachable if the outcome could not be learned.
        """
        budget = self._budget(patience)
        with claim.lock:
            while True:
                failure: Uncertain | None = None
                try:
                    claim.version = self.store.replace(claim.path, fields, claim.version, budget.rpc())
                    return
                except Changed:
                    pass
                except Uncertain as error:
                    failure = error
                seen = self._ours(claim, budget)
                claim.version = seen.version
                if _applied(seen, fields):
                    return
                if seen.status not in sources:
                    raise LeaseLost(f"the record is {seen.status} already")
                budget.spend(failure)

    def extend(self, claim: Claim, seconds: float, limit: float) -> float:
        """Let the lease run `seconds` from now, never beyond `limit` seconds after the claim. Seconds left, at least.

        Raises LeaseLost, Uncertain, Unreachable; ValueError for what is no number.
        """
        if math.isnan(seconds):
            raise ValueError("a lease is extended by a number of seconds, not by NaN")
        with claim.lock:  # a keep-alive's shorter extension never takes back the body's longer one
            elapsed = self.host.monotonic() - claim.since
            lease = min(elapsed + seconds, limit)
            if lease <= claim.lease_seconds:  # nothing to write; still say at once whether it is lost
                self.check(claim)
            else:
                self.settle(claim, {"status": Status.IN_PROGRESS.value, "lease_seconds": lease}, (Status.IN_PROGRESS,))
                claim.lease_seconds = lease
            return claim.lease_seconds - (self.host.monotonic() - claim.since)

    def amend(self, path: str, attempt_id: str, change: Callable[[Record], Fields]) -> None:
        """An operator's write: the fields that `change` makes of the record as read, under a new attempt id.

        `change` raises what speaks against it. Raises NotAccepted if the record is absent; Uncertain or Unreachable if
        the outcome could not be learned.
        """
        budget = self._budget(None)
        tried, failure = False, None
        while True:
            seen = self.read(path, budget)
            if seen is None:
                raise NotAccepted(f"there is no record {path}")
            if seen.attempt_id == attempt_id:  # applied; its answer was lost
                return
            if tried:
                budget.spend(failure)
            fields = {**change(seen), "attempt_id": attempt_id}
            tried, failure = True, None
            try:
                self.store.replace(path, fields, seen.version, budget.rpc())
                return
            except Changed:
                pass
            except Uncertain as error:
                failure = error

    def check(self, claim: Claim) -> None:
        """Return if the record is still this attempt's and in progress. Raises LeaseLost, Unreachable."""
        seen = self._ours(claim, self._budget(None))
        if seen.status is not Status.IN_PROGRESS:
            raise LeaseLost(f"the record is {seen.status} already")

    def read(self, path: str, budget: Budget | None = None) -> Record | None:
        """None if it is absent. Raises Unreachable."""
        return Record.of(self._snapshot(path, budget or self._budget(None)))

    def server_time(self, path: str) -> datetime:
        """The server's clock, by one read. Raises Unreachable."""
        return self._snapshot(path, self._budget(None)).read_time

    def _snapshot(self, path: str, budget: Budget) -> Snapshot:
        while True:
            try:
                return self.store.read(path, budget.rpc())
            except Unreachable as error:
                budget.spend(error)

    def _ours(self, claim: Claim, budget: Budget) -> Record:
        """The record, if this attempt's id stands in it. Raises LeaseLost, Unreachable."""
        seen = self.read(claim.path, budget)
        if seen is None:
            raise LeaseLost("the record is gone")
        if seen.attempt_id != claim.attempt_id:
            raise LeaseLost("another attempt has taken over")
        return seen

    def _budget(self, patience: Patience | None) -> Budget:
        return Budget(self.host, patience or self.patience)


def _applied(seen: Record, fields: Fields) -> bool:
    """Whether our own write stands in our own record: one attempt settles once, so the status tells, and a write
    that leaves it in progress (an extension, a mark) is known by its values."""
    if seen.status != fields["status"]:
        return False
    return seen.status is not Status.IN_PROGRESS or all(seen.fields.get(name) == fields[name] for name in fields)
