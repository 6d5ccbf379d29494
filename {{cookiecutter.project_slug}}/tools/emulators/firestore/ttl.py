"""Time to live: documents whose timestamp in the policy's field has passed are deleted, by and by.

Production deletes "usually within 24 hours" of the expiry, and an expired document stays readable until then. Here
`delay` is that time; a test chooses 0 or counts on the 24 hours. Subcollections remain. A deletion is a commit like any
other, with a commit time of its own, and it aborts transactions that have read the document.
"""

from __future__ import annotations

import threading

from tools.emulators.firestore.core import Database

DELAY_SECONDS = 86_400.0
"""Seconds on the emulators' clock between expiry and deletion, unless another delay is chosen."""

POLL_SECONDS = 0.2
"""Real seconds between two looks at the clock, which may jump."""

BATCH = 500
"""Deletions in one commit."""


class Sweeper:
    """A thread that deletes what has expired `delay` seconds ago."""

    def __init__(self, database: Database, delay: float) -> None:
        self._database = database
        self._delay = int(delay * 1_000_000)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ttl", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            while self.sweep() == BATCH and not self._stopped.is_set():
                pass

    def sweep(self) -> int:
        """Delete up to BATCH documents that are due; how many it was."""
        storage = self._database.storage
        with self._database.monitor:
            due = storage.expired(storage.now() - self._delay, BATCH)
            if due:
                with storage.commit() as time:
                    for database, path in due:
                        storage.put(database, path, time, None)
        return len(due)
