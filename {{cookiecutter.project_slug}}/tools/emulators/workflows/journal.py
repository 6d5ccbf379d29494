"""What outlives the emulator: resources as JSON in one SQLite file.

A write is in the operating system's hands when `put` returns, so it survives a kill of the process; it is not synced
to the disk, which a power cut would show.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from .resources import Resource


class Journal:
    """Records of several kinds by key, in the order in which they were first put. Thread-safe.

    `path` None keeps everything in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS records "
            "(seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (kind, key))"
        )

    def put(self, kind: str, key: str, body: Resource | list[Resource]) -> None:
        text = json.dumps(body, separators=(",", ":"))
        with self._lock:
            self._connection.execute(
                "INSERT INTO records (kind, key, body) VALUES (?, ?, ?) "
                "ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body",
                (kind, key, text),
            )

    def get(self, kind: str, key: str) -> list[Resource] | Resource | None:
        with self._lock:
            row = self._connection.execute(
                "SELECT body FROM records WHERE kind = ? AND key = ?", (kind, key)
            ).fetchone()
        if row is None:
            return None
        found: Resource | list[Resource] = json.loads(row[0])
        return found

    def all(self, kind: str) -> Iterator[Resource]:
        with self._lock:
            rows = self._connection.execute("SELECT body FROM records WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
        for (body,) in rows:
            yield json.loads(body)

    def delete(self, kind: str, key: str) -> None:
        with self._lock:
            self._connection.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key))

    def close(self) -> None:
        with self._lock:
            self._connection.close()
