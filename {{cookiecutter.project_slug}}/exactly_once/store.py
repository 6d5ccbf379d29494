"""What the protocol asks of the world: a store with four primitives, time, ids and sleep. Nothing here knows Firestore.

The protocol is written against `Store` and `Host` alone, so that a model of either can drive the very code that
runs in the cloud.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Protocol

from .errors import Uncertain, Unreachable

Fields = Mapping[str, Any]

Version = Any
"""Which write a record comes from: opaque, equal only for the same write (Firestore: the update time)."""


class Sentinel(Enum):
    SERVER_TIME = "server time"


SERVER_TIME = Sentinel.SERVER_TIME
"""As a field's value: the store puts its own time of the write there."""


@dataclass(frozen=True)
class Snapshot:
    """One document as read. `fields` and `version` are None if it is absent; `read_time` is the server's."""

    fields: Fields | None
    version: Version | None
    read_time: datetime


Work = Callable[[Any, Snapshot], Fields | None]
"""The inside of a transaction: gets its handle and the record as read in it; the fields to write, or None to roll
back.
"""


class Store(Protocol):
    """Each call is sent once: the store repeats nothing by itself. `timeout` is in seconds."""

    def create(self, path: str, fields: Fields, timeout: float) -> Version:
        """Write a record that must be absent. Raises Exists, Uncertain."""
        ...

    def read(self, path: str, timeout: float) -> Snapshot:
        """Raises Unreachable."""
        ...

    def replace(self, path: str, fields: Fields, version: Version, timeout: float) -> Version:
        """Set `fields` of a record (others stay) that must still be `version`. Raises Changed, Uncertain."""
        ...

    def transaction(self, path: str, work: Work, retry_of: Any, timeout: float) -> None:
        """Begin, read the record, call `work`, and commit what it wrote together with the fields it returned.

        The record's write carries what was read as its precondition. What `work` raises passes through after a
        rollback; contention inside `work`, and any failure of the commit, is Uncertain; failing to begin or to read is
        Unreachable. `retry_of` is a `TransactionToken` that carries the store's own notion of "the same again".
        """
        ...


class TransactionToken:
    """What a store remembers from one try of a transaction to the next (Firestore: the id, to keep the place in
    line).
    """

    def __init__(self) -> None:
        self.value: Any = None


@dataclass(frozen=True)
class Host:
    """Time, ids and sleep of this process.

    `monotonic`, `sleep` and `wait` (seconds) bound waiting; `now` (UTC) goes into `expire_at`, and tells whether a slot
    looks as if it were to come. None of them decides a lease.
    """

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex


@dataclass(frozen=True)
class Patience:
    """How long one decision may take: seconds in all, seconds an RPC, and RPCs of one kind that may fail."""

    total: float = 7.5
    rpc: float = 3.0
    tries: int = 12


class Budget:
    """What is left of one decision's `Patience`."""

    def __init__(self, host: Host, patience: Patience) -> None:
        self._host = host
        self._patience = patience
        self._end = host.monotonic() + patience.total
        self._failures = 0

    def renew(self) -> None:
        """A new question begins: all the time again, with the failures so far."""
        self._end = self._host.monotonic() + self._patience.total

    def rpc(self) -> float:
        """Seconds the next RPC may take. Raises Unreachable when the time is over."""
        left = self._end - self._host.monotonic()
        if left <= 0.01:
            raise Unreachable(f"no answer within {self._patience.total:g} s")
        return min(left, self._patience.rpc)

    def spend(self, error: Uncertain | Unreachable | None) -> None:
        """Count one failure and pause, longer each time; raises `error` when there is no use in another try.

        None is a lost race, which needs no pause: whoever won it got on.
        """
        self._failures += 1
        if self._failures >= self._patience.tries:
            raise error or Unreachable("the record changed under every try")
        if error is None:
            return
        if error.hopeless:
            raise error
        pause = min(1.0, 0.025 * 2**self._failures)
        if self._host.monotonic() + pause >= self._end:
            raise error
        self._host.sleep(pause)
