"""Documents and their past on SQLite.

Each commit has a time of its own, in microseconds, that is greater than that of every commit before it; a document's
update time is that of its last commit. `documents` holds the newest version of each document, with no body once it is
deleted; `history` holds what was replaced, for reads in the past.

WAL mode: a commit that was acknowledged survives `kill -9`, and none is ever half there. The file belongs to one server
at a time. Nothing here locks: the caller holds `service.Firestore.monitor`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.emulators.firestore import limits, names, values
from tools.emulators.firestore.errors import FailedPrecondition, InvalidArgument, StorageError
from tools.emulators.firestore.messages import Document, Message, microseconds

HISTORY = int(limits.HISTORY_SECONDS * 1_000_000)
PRUNE_EVERY = 1000
"""Commits between two removals of what is older than the history reaches."""

ANY_DATABASE = "*"

SCHEMA = """
CREATE TABLE IF NOT EXISTS documents(
    database TEXT, path TEXT, collection TEXT, group_id TEXT, time INTEGER, body BLOB,
    PRIMARY KEY(database, path)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS in_collection ON documents(database, collection, path);
CREATE INDEX IF NOT EXISTS in_group ON documents(database, group_id, path);
CREATE TABLE IF NOT EXISTS history(
    database TEXT, path TEXT, time INTEGER, until INTEGER, body BLOB,
    PRIMARY KEY(database, path, time)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS replaced ON history(until);
CREATE TABLE IF NOT EXISTS clock(id INTEGER PRIMARY KEY CHECK(id = 1), last INTEGER);
INSERT OR IGNORE INTO clock VALUES(1, 0);
CREATE TABLE IF NOT EXISTS policies(
    database TEXT, group_id TEXT, field TEXT, PRIMARY KEY(database, group_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS expiries(
    database TEXT, path TEXT, time INTEGER, PRIMARY KEY(database, path)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS expiring ON expiries(time);
"""
FORMAT = 1
"""Kept in the file's user_version; another one is refused."""


class Found:
    """One version of one document, parsed when it is looked at."""

    __slots__ = ("_document", "body", "path", "time")

    def __init__(self, path: str, time: int, body: bytes) -> None:
        self.path = path
        self.time = time
        self.body = body
        self._document: Message = None

    @property
    def document(self) -> Message:
        if self._document is None:
            self._document = Document.FromString(self.body)
        return self._document


class Storage:
    """`now` gives seconds since the epoch; `path` None keeps everything in memory."""

    def __init__(self, path: Path | None, now: Callable[[], float], synchronous: str = "normal") -> None:
        self._now = now
        try:
            self._open(path, synchronous)
        except sqlite3.Error as error:
            reason = "it is in use by another server" if "locked" in str(error) else str(error)
            raise StorageError(f"cannot use {path} as a Firestore file: {reason}") from None
        self.last: int = self._sql.execute("SELECT last FROM clock").fetchone()[0]
        self.started: int = self.last
        self._commits = 0
        self._changed: dict[tuple[str, str], int] = {}
        self._policies = {(row[0], row[1]): row[2] for row in self._sql.execute("SELECT * FROM policies")}

    def _open(self, path: Path | None, synchronous: str) -> None:
        self._sql = sqlite3.connect(
            ":memory:" if path is None else path, isolation_level=None, check_same_thread=False, timeout=0.2
        )
        self._sql.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._sql.execute("PRAGMA journal_mode=WAL")
        self._sql.execute(f"PRAGMA synchronous={synchronous}")
        self._sql.execute("BEGIN EXCLUSIVE")
        version = self._sql.execute("PRAGMA user_version").fetchone()[0]
        tables = self._sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version != FORMAT and tables:
            raise sqlite3.DatabaseError(f"its format is {version}, not {FORMAT}")
        for statement in SCHEMA.split(";\n"):
            self._sql.execute(statement)
        self._sql.execute(f"PRAGMA user_version={FORMAT}")
        self._sql.execute("COMMIT")

    def close(self) -> None:
        self._sql.close()

    # -- time

    def now(self) -> int:
        """A read time in microseconds: no earlier than any commit, and every later commit is greater."""
        self.last = max(self.last, int(self._now() * 1_000_000))
        return self.last

    def check_read_time(self, at: int) -> int:
        """The read time, if the history reaches back to it. Raises InvalidArgument or FailedPrecondition."""
        now = self.now()
        if at > now:
            raise InvalidArgument("read_time cannot be in the future.")
        if at < now - HISTORY:
            raise FailedPrecondition("The requested snapshot version is too old.")
        return at

    # -- reading

    def read(self, database: str, path: str, at: int | None = None) -> Found | None:
        """The version of a document at a time (None: the newest), None if there was none."""
        row = self._sql.execute(
            "SELECT time, body FROM documents WHERE database=? AND path=?", (database, path)
        ).fetchone()
        if row is not None and at is not None and row[0] > at:
            row = self._past(database, path, at)
        return Found(path, row[0], row[1]) if row is not None and row[1] is not None else None

    def time_of(self, database: str, path: str) -> int | None:
        """The update time of the newest version, None if there is no such document."""
        row: tuple[int] | None = self._sql.execute(
            "SELECT time FROM documents WHERE database=? AND path=? AND body IS NOT NULL", (database, path)
        ).fetchone()
        return row[0] if row is not None else None

    def _past(self, database: str, path: str, at: int) -> tuple[int, bytes | None] | None:
        row: tuple[int, bytes | None] | None = self._sql.execute(
            "SELECT time, body FROM history WHERE database=? AND path=? AND time<=? ORDER BY time DESC LIMIT 1",
            (database, path, at),
        ).fetchone()
        return row

    def collection(self, database: str, collection: str, at: int | None = None) -> Iterator[Found]:
        """The documents of one collection, by id."""
        return self._scan(database, "collection=?", (collection,), at)

    def below(self, database: str, parent: str, group: str = "", at: int | None = None) -> Iterator[Found]:
        """Every document below another one (or below the root), only those of one collection group if given."""
        where, arguments = ["path>=?"], [f"{parent}/" if parent else ""]
        if parent:
            where, arguments = [*where, "path<?"], [*arguments, f"{parent}0"]  # '0' is the character after '/'
        if group:
            where, arguments = [*where, "group_id=?"], [*arguments, group]
        return self._scan(database, " AND ".join(where), tuple(arguments), at)

    def _scan(self, database: str, where: str, arguments: tuple[str, ...], at: int | None) -> Iterator[Found]:
        rows = self._sql.execute(
            f"SELECT path, time, body FROM documents WHERE database=? AND {where} ORDER BY path", (database, *arguments)
        )
        for path, time, body in rows.fetchall():
            if at is not None and time > at:
                past = self._past(database, path, at)
                if past is None or past[1] is None:
                    continue
                yield Found(path, past[0], past[1])
            elif body is not None:
                yield Found(path, time, body)

    def changed(self, database: str, scope: str) -> int:
        """No commit after this time has touched the scope (see names.scopes)."""
        return self._changed.get((database, scope), self.started)

    # -- writing

    @contextmanager
    def commit(self) -> Iterator[int]:
        """One commit, all or nothing; gives its time."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            last = self.last
            time = max(self.now(), last + 1)
            yield time
            self._sql.execute("UPDATE clock SET last=?", (time,))
            self._commits += 1
            if self._commits % PRUNE_EVERY == 0:
                self._prune(time - HISTORY)
            self._sql.execute("COMMIT")
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        self.last = time

    def put(self, database: str, path: str, time: int, document: Message | None) -> None:
        """Within a commit: the document's new version; None deletes it."""
        self._sql.execute(
            "INSERT OR IGNORE INTO history SELECT database, path, time, ?, body FROM documents"
            " WHERE database=? AND path=? AND time<>?",
            (time, database, path, time),
        )
        collection, group = names.parent(path), names.collection_id(path)
        self._sql.execute(
            "INSERT OR REPLACE INTO documents VALUES(?,?,?,?,?,?)",
            (database, path, collection, group, time, None if document is None else document.SerializeToString()),
        )
        self._changed.update(dict.fromkeys(((database, scope) for scope in names.scopes(path)), time))
        if self._policies:
            self._note_expiry(database, path, group, document)

    def _prune(self, before: int) -> None:
        self._sql.execute("DELETE FROM history WHERE until<?", (before,))
        self._sql.execute("DELETE FROM documents WHERE body IS NULL AND time<?", (before,))

    # -- expiry

    def policies(self) -> dict[tuple[str, str], str]:
        """The field with the expiry, by database (or ANY_DATABASE) and collection group."""
        return dict(self._policies)

    def policy(self, database: str, group: str) -> str | None:
        """The field that decides in this database: its own policy goes before the one for all."""
        return self._policies.get((database, group)) or self._policies.get((ANY_DATABASE, group))

    def set_policy(self, database: str, group: str, field: str | None) -> None:
        """Documents of the collection group expire at the time in `field`; None ends that."""
        with self.commit():
            self._sql.execute("DELETE FROM policies WHERE database=? AND group_id=?", (database, group))
            self._policies.pop((database, group), None)
            if field is not None:
                self._sql.execute("INSERT INTO policies VALUES(?,?,?)", (database, group, field))
                self._policies[database, group] = field
            where, arguments = ("", (group,)) if database == ANY_DATABASE else (" AND database=?", (group, database))
            rows = self._sql.execute(
                f"SELECT database, path, body FROM documents WHERE group_id=? AND body IS NOT NULL{where}", arguments
            )
            for owner, path, body in rows.fetchall():
                self._note_expiry(owner, path, group, Document.FromString(body))

    def _note_expiry(self, database: str, path: str, group: str, document: Message | None) -> None:
        field = self.policy(database, group)
        value = values.get(document.fields, values.field_path(field)) if field and document is not None else None
        if value is not None and value.WhichOneof("value_type") == "timestamp_value":
            self._sql.execute(
                "INSERT OR REPLACE INTO expiries VALUES(?,?,?)", (database, path, microseconds(value.timestamp_value))
            )
        else:
            self._sql.execute("DELETE FROM expiries WHERE database=? AND path=?", (database, path))

    def next_expiry(self) -> int | None:
        """When the next document expires, in microseconds."""
        row: tuple[int | None] = self._sql.execute("SELECT min(time) FROM expiries").fetchone()
        return row[0]

    def expired(self, before: int, limit: int) -> list[tuple[str, str]]:
        """Database and path of documents whose expiry is not after `before`, the oldest first."""
        return self._sql.execute(
            "SELECT database, path FROM expiries WHERE time<=? ORDER BY time LIMIT ?", (before, limit)
        ).fetchall()
