"""The records: one a run, one a step or item of it. What stands in them decides; nothing else does.

Fields of both: `status`, `attempt_id`, `attempts`, `claimed_at` (server's time of the claim), `lease_seconds`,
`expire_at` (TTL; null: never). A step's: `step`, `item`, `input_digest` (null: any input), `result` (JSON text),
`error`, `crashes` (attempts that ended without a word), `started` (see `Run.starting`), `resolutions` (what operators
did). A run's: `execution`, `job`, `slot`, `kind`, `key`, `run` (the context, JSON text), `by` (the operator who
started it by hand, and why), `resuming` (who is starting it again), `why` (it waits or was skipped), `resolutions`. A
field that has nothing to say is null or absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from .store import Fields, Snapshot, Version


class Status(StrEnum):
    """Where a record stands."""

    IN_PROGRESS = "in_progress"  # an attempt holds it until its lease runs out
    COMPLETED = "completed"  # a step: the result is final
    RELEASED = "released"  # nobody holds it: the next attempt may
    FAILED = "failed"  # a step: final until an operator says otherwise
    UNKNOWN = "unknown"  # a step: held, nothing runs until an operator says what happened
    STARTED = "started"  # a run: its execution was started
    QUEUED = "queued"  # a run: starts when no earlier one is at work
    SKIPPED = "skipped"  # a run: an earlier one was at work, so it does not start unless an operator says so


@dataclass(frozen=True)
class Record:
    """A record as read, and the server's time of the reading."""

    fields: Fields
    version: Version
    read_time: datetime

    @classmethod
    def of(cls, snapshot: Snapshot) -> Record | None:
        """None if the record is absent."""
        if snapshot.fields is None:
            return None
        return cls(snapshot.fields, snapshot.version, snapshot.read_time)

    @property
    def status(self) -> Status:
        return Status(self.fields["status"])

    @property
    def attempt_id(self) -> str:
        return str(self.fields["attempt_id"])

    @property
    def attempts(self) -> int:
        return int(self.fields["attempts"])

    @property
    def crashes(self) -> int:
        return int(self.fields.get("crashes") or 0)

    @property
    def error(self) -> str:
        return str(self.fields.get("error") or "")

    def lease_left(self) -> float:
        """Seconds of the lease, by the server's clock at both ends; 0 or less: it has run out."""
        end: datetime = self.fields["claimed_at"] + timedelta(seconds=self.fields["lease_seconds"])
        return (end - self.read_time).total_seconds()

    def abandoned(self) -> bool:
        """In progress, and its lease has run out: its attempt ended without a word, or is late."""
        return self.status is Status.IN_PROGRESS and self.lease_left() <= 0
