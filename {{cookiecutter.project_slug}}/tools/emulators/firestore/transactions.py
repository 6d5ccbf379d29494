"""Transactions: what each has read, how long it may live, and who waits for whom.

**Isolation** is optimistic: a read-write transaction reads one consistent snapshot, and its commit is carried out only
if nothing that it read, documents and query results alike, has changed since; otherwise it is ABORTED. So every
committed transaction is serializable at its commit.

**Holds** only shorten contention. Reading a document holds it for the transaction, and another transaction that begins
by reading it waits for a while, instead of being aborted later; an attempt after an ABORTED one waits for all that the
earlier attempt read. Only a first read waits, in one order for all, so nobody waits in a circle. Plain writes never
wait, and a transaction whose client has died holds nobody up for longer than HOLD_SECONDS.

With `reader_locks`, as production and Google's emulator have it, what a transaction has read is locked against every
other writer until it ends or its time is over, even if its client is dead. Two that wait for each other do not wait:
the one that comes second is ABORTED.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tools.emulators.firestore import limits, names
from tools.emulators.firestore.errors import Aborted, InvalidArgument
from tools.emulators.firestore.queries import Query
from tools.emulators.firestore.storage import Storage

HOLD_SECONDS = 1.0
"""Real seconds that a first read waits for another transaction."""

LOCK_SECONDS = 2.0
"""Real seconds that a writer waits for readers before it is ABORTED, with `reader_locks`: as Google's emulator."""

POLL_SECONDS = 0.05
"""How often a waiter looks whether a transaction's time on the emulators' clock is over."""

MAX_WAITING = 100
"""Requests that wait at a time: more go on at once, so that there is always a thread left for those waited for."""

CONTENTION = "Too much contention on these documents. Please try again."
EXPIRED = "The referenced transaction has expired or is no longer valid."

ID_PREFIX = b"\x0atx\x01"
"""Of every transaction's id, also of those before a restart."""

Name = tuple[str, str]
"""Database, and the path of a document or the scope of a query (names.scopes)."""


@dataclass(eq=False)
class Transaction:
    """`snapshot` is the time at which it reads (microseconds), once it is known; `root` the id of its first attempt.

    `held` and `wants` are documents: those that it has read, and those for whose other readers its commit waits.
    """

    id: bytes
    database: str
    read_only: bool
    root: bytes
    snapshot: int | None
    begun: float
    used: float
    documents: dict[str, int | None] = field(default_factory=dict)
    queries: list[tuple[Query, list[tuple[str, int]]]] = field(default_factory=list)
    held: set[Name] = field(default_factory=set)
    wants: set[Name] = field(default_factory=set)

    def unchanged(self, storage: Storage) -> bool:
        """Nothing that it has read has changed since."""
        since = self.snapshot or 0
        if storage.last <= since:
            return True
        return all(storage.time_of(self.database, path) == seen for path, seen in self.documents.items()) and all(
            storage.changed(self.database, query.scope) <= since
            or [(found.path, found.time) for found in query.run(storage, None)] == seen
            for query, seen in self.queries
        )


@dataclass(frozen=True)
class Limits:
    """`idle` and `total` are seconds on the emulators' clock, `lock_wait` real ones."""

    idle: float = limits.TRANSACTION_IDLE_SECONDS
    total: float = limits.TRANSACTION_SECONDS
    lock_wait: float = LOCK_SECONDS


class Transactions:
    """The open transactions. Every method is called with `monitor` held, and waiting gives it up meanwhile."""

    def __init__(
        self, monitor: threading.Condition, now: Callable[[], float], limits: Limits, reader_locks: bool
    ) -> None:
        self._monitor = monitor
        self._now = now
        self._limits = limits
        self._reader_locks = reader_locks
        self._open: dict[bytes, Transaction] = {}
        self._holders: dict[Name, list[Transaction]] = {}
        self._aborted: dict[bytes, set[Name]] = {}
        self._waiting = 0

    def begin(self, database: str, *, read_only: bool, read_time: int | None = None, retry: bytes = b"") -> Transaction:
        """Open one. `retry` is the id of an earlier attempt, whose place in the queue it takes."""
        now = self._now()
        for old in [old for old in self._open.values() if self._is_over(old)]:
            self.end(old)
        identifier = ID_PREFIX + secrets.token_bytes(12)
        transaction = Transaction(identifier, database, read_only, retry or identifier, read_time, now, now)
        self._open[identifier] = transaction
        return transaction

    def get(self, identifier: bytes, database: str) -> Transaction:
        """The open transaction with this id. Raises InvalidArgument."""
        transaction = self._open.get(identifier)
        if transaction is None or transaction.database != database or self._is_over(transaction):
            raise InvalidArgument(EXPIRED)
        transaction.used = self._now()
        return transaction

    def take(self, identifier: bytes, database: str) -> Transaction:
        """`get`, for a commit: no second commit finds it, so that a repeated one is never carried out twice."""
        transaction = self.get(identifier, database)
        del self._open[identifier]
        return transaction

    def discard(self, identifier: bytes) -> None:
        """Roll back; nothing happens if it has ended already. Raises InvalidArgument for what never was an id."""
        if not identifier.startswith(ID_PREFIX):
            raise InvalidArgument("Invalid transaction.")
        if (transaction := self._open.get(identifier)) is not None:
            self.end(transaction)

    def end(self, transaction: Transaction) -> None:
        self._open.pop(transaction.id, None)
        for name in transaction.held:
            holders = self._holders[name]
            holders.remove(transaction)
            if not holders:
                del self._holders[name]
        transaction.held.clear()
        self._monitor.notify_all()

    def aborted(self, transaction: Transaction) -> None:
        """Remember what an aborted attempt has read, for its next one."""
        if len(self._aborted) > 1000:
            self._aborted.clear()
        read = self._aborted.setdefault(transaction.root, set())
        read.update((transaction.database, path) for path in transaction.documents)

    def hold(self, transaction: Transaction, paths: Iterable[str]) -> None:
        """Hold documents that are about to be read, after waiting for their holders if it is the first read."""
        is_first = not transaction.held
        wanted = {(transaction.database, path) for path in paths}
        if is_first and not self._reader_locks:
            wanted |= self._aborted.get(transaction.root, set())
            until = time.monotonic() + HOLD_SECONDS
            for name in sorted(wanted):
                self._wait(lambda name=name: not self._others(name, transaction), until)  # type: ignore[misc]
                self._add(name, transaction)
        else:
            for name in wanted:
                self._add(name, transaction)

    def lock(self, transaction: Transaction, scope: str) -> None:
        """With `reader_locks`: what a query reads is locked like a document, all of its collection."""
        if self._reader_locks:
            self._add((transaction.database, scope), transaction)

    def wait_for_readers(self, writer: Transaction | None, database: str, paths: Iterable[str]) -> None:
        """With `reader_locks`: wait until no other transaction has read these documents. Raises Aborted."""
        if not self._reader_locks:
            return
        wanted = {(database, name) for path in paths for name in (path, *names.scopes(path))}
        until = time.monotonic() + self._limits.lock_wait
        if writer is not None:
            writer.wants = wanted
        while others := {other for name in wanted for other in self._others(name, writer)}:
            if writer is not None and any(other.wants & writer.held for other in others):
                raise Aborted(CONTENTION)
            if time.monotonic() >= until or self._waiting >= MAX_WAITING:
                raise Aborted("Transaction lock timeout.")
            self._pause(until)

    def _wait(self, free: Callable[[], bool], until: float) -> None:
        while not free() and time.monotonic() < until and self._waiting < MAX_WAITING:
            self._pause(until)

    def _pause(self, until: float) -> None:
        self._waiting += 1
        self._monitor.wait(min(POLL_SECONDS, max(0.0, until - time.monotonic())))
        self._waiting -= 1

    def _add(self, name: Name, transaction: Transaction) -> None:
        if name not in transaction.held:
            transaction.held.add(name)
            self._holders.setdefault(name, []).append(transaction)

    def _others(self, name: Name, but: Transaction | None) -> list[Transaction]:
        holders = self._holders.get(name, ())
        return [holder for holder in holders if holder is not but and not self._is_over(holder)]

    def _is_over(self, transaction: Transaction) -> bool:
        now = self._now()
        return now - transaction.used > self._limits.idle or now - transaction.begun > self._limits.total
