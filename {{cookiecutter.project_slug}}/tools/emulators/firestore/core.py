"""Reads and commits, in and out of transactions: what the RPCs have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tools.emulators.firestore import commits, names
from tools.emulators.firestore.errors import Aborted, InvalidArgument
from tools.emulators.firestore.messages import Message, microseconds
from tools.emulators.firestore.queries import Query
from tools.emulators.firestore.storage import Found, Storage
from tools.emulators.firestore.transactions import CONTENTION, Limits, Transaction, Transactions


@dataclass(frozen=True)
class Reading:
    """From when a read is (`at`, None for the newest), the read time to report, and its transaction, new or not."""

    at: int | None
    time: int
    transaction: Transaction | None = None
    is_new: bool = False

    @property
    def new_id(self) -> bytes:
        """The id of a transaction that this read has begun, else nothing."""
        return self.transaction.id if self.transaction is not None and self.is_new else b""


class Database:
    """All databases of one file, one request at a time: whoever waits gives up `monitor` meanwhile."""

    def __init__(self, storage: Storage, now: Callable[[], float], limits: Limits, *, reader_locks: bool) -> None:
        self.monitor = threading.Condition()
        self.storage = storage
        self.transactions = Transactions(self.monitor, now, limits, reader_locks)

    def begin(self, database: str, options: Message) -> Transaction:
        """Open a transaction with TransactionOptions. Raises InvalidArgument, FailedPrecondition for its read time."""
        if not options.HasField("read_only"):
            return self.transactions.begin(database, read_only=False, retry=options.read_write.retry_transaction)
        read_time = self.storage.now()
        if options.read_only.HasField("read_time"):
            read_time = self.storage.check_read_time(microseconds(options.read_only.read_time))
        return self.transactions.begin(database, read_only=True, read_time=read_time)

    @contextmanager
    def reading(self, request: Message, database: str, paths: Iterable[str] = ()) -> Iterator[Reading]:
        """A consistent read as the request's consistency selector says; `paths` are the documents it is about.

        Raises InvalidArgument, FailedPrecondition. With the monitor held until the end.
        """
        with self.monitor:
            match request.WhichOneof("consistency_selector"):
                case "transaction":
                    yield self._in(self.transactions.get(request.transaction, database), paths)
                case "new_transaction":
                    yield self._in(self.begin(database, request.new_transaction), paths, is_new=True)
                case "read_time":
                    at = self.storage.check_read_time(microseconds(request.read_time))
                    yield Reading(at, at)
                case _:
                    yield Reading(None, self.storage.now())

    def _in(self, transaction: Transaction, paths: Iterable[str], *, is_new: bool = False) -> Reading:
        """A read-write transaction reads what is newest as long as that is consistent with what it has read before."""
        if not transaction.read_only:
            self.transactions.hold(transaction, paths)
        current = transaction.snapshot
        if current is None or (not transaction.read_only and transaction.unchanged(self.storage)):
            current = transaction.snapshot = self.storage.now()
        return Reading(current, current, transaction, is_new)

    def document(self, database: str, path: str, reading: Reading) -> Found | None:
        found = self.storage.read(database, path, reading.at)
        if reading.transaction is not None:
            reading.transaction.documents.setdefault(path, found.time if found is not None else None)
        return found

    def results(self, query: Query, reading: Reading) -> list[Found]:
        found = query.run(self.storage, reading.at)
        if reading.transaction is not None and not reading.transaction.read_only:
            reading.transaction.queries.append((query, [(each.path, each.time) for each in found]))
            self.transactions.lock(reading.transaction, query.scope)
        return found

    def commit(
        self, database: str, writes: Sequence[Message], transaction_id: bytes = b""
    ) -> tuple[int, list[Message]]:
        """Carry out the writes at once; the commit time and the write results. Any FirestoreError leaves nothing.

        A transaction is over then, but for a request that is invalid in itself.
        """
        checked = commits.check(database, writes)
        with self.monitor:
            transaction = self.transactions.take(transaction_id, database) if transaction_id else None
            try:
                return self._commit(database, checked, transaction)
            except Aborted:
                if transaction is not None:
                    self.transactions.aborted(transaction)
                raise
            finally:
                if transaction is not None:
                    self.transactions.end(transaction)

    def _commit(
        self, database: str, writes: Sequence[commits.Checked], transaction: Transaction | None
    ) -> tuple[int, list[Message]]:
        if not writes:
            return self.storage.now(), []
        if transaction is not None and transaction.read_only:
            raise InvalidArgument("Cannot modify entities in a read-only transaction.")
        self.transactions.wait_for_readers(transaction, database, (write.path for write in writes))
        if transaction is not None and not transaction.unchanged(self.storage):
            raise Aborted(CONTENTION)
        with self.storage.commit() as time:
            return time, commits.Changes(self.storage, database, time).carry_out(writes)

    def missing_parents(self, database: str, collection: str, at: int | None) -> Iterator[str]:
        """Paths of the collection's documents that may only exist as the parents of others, with repetitions."""
        depth = len(collection.split("/")) + 1
        for found in self.storage.below(database, collection, at=at):
            yield "/".join(found.path.split("/")[:depth])

    def collection_ids(self, database: str, parent: str, at: int | None) -> list[str]:
        """The ids of the collections that lie directly under a document, or under the root."""
        depth = len(parent.split("/")) if parent else 0
        below = self.storage.below(database, names.check_parent(parent), at=at)
        return sorted({found.path.split("/")[depth] for found in below})
