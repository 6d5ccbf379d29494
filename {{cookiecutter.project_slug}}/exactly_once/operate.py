"""What an operator may do to a record: decide an outcome, let a result stand, start a run again.

Each is one compare-and-set on the record that the operator saw, named by its attempt id, puts a new attempt id into
it, which fences whoever may still be at work, and adds who, when (the server's time) and why to the record's
`resolutions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from .encoding import result_text
from .errors import NotAccepted
from .identity import RunContext, run_path, step_path
from .launching import RUN_OUTLIVES_STEPS, Starter
from .log import Log
from .protocol import Protocol
from .records import Record, Status
from .store import Fields

Outcome = Literal["done", "redo"]

RESUMING = timedelta(seconds=60)
"""How long a mark of a resumption holds that nobody took away: longer than a start may take."""


@dataclass(frozen=True)
class Operator:
    """One person at work on one pipeline. `who` is kept in the records."""

    pipeline: str
    who: str
    protocol: Protocol
    retention: timedelta
    log: Log

    def resolve(
        self,
        run_id: str,
        step: str,
        item: str | None,
        *,
        attempt_id: str,
        outcome: Outcome,
        note: str,
        result: Any = None,
    ) -> None:
        """Decide a step whose outcome is `unknown`, that has `failed`, or whose attempt's lease has run out.

        "done": its effect is there; `result` (JSON, at most 256 KiB) is its result. "redo": it is not; the next attempt
        runs the body, with whatever input it gets. Nothing is started: resume the run for that. Raises NotAccepted,
        BadResult, StoreError.
        """
        settled: Fields
        if outcome == "done":
            settled = {"status": Status.COMPLETED.value, "result": result_text(result)}
        else:
            settled = {"status": Status.RELEASED.value, "result": None}

        def change(seen: Record) -> Fields:
            _expect(seen, attempt_id)
            if seen.status not in (Status.UNKNOWN, Status.FAILED) and not seen.abandoned():
                wait = f": its lease has {seen.lease_left():.0f} s left" if seen.status is Status.IN_PROGRESS else ""
                raise NotAccepted(
                    f"the step is {seen.status}{wait}; only unknown, failed, or left in progress is resolved"
                )
            return {
                **settled,
                "error": None,
                "input_digest": None,
                "attempts": 0,
                "crashes": 0,
                "started": None,
                "expire_at": self.protocol.host.now() + self.retention,
                "resolutions": [*_kept(seen), self._entry(seen, f"resolved as {outcome}", note)],
            }

        self._amend(step_path(self.pipeline, run_id, step, item), change)
        self._say("operator.resolved", run_id, note, step=step, item=item, outcome=outcome, previous=attempt_id)

    def accept(self, run_id: str, step: str, item: str | None, *, attempt_id: str, note: str) -> None:
        """Let the recorded result of a completed step stand for any input. Raises NotAccepted, StoreError.

        For a run that is resumed after a fix which changes the input of a step that is done already.
        """

        def change(seen: Record) -> Fields:
            _expect(seen, attempt_id)
            if seen.status is not Status.COMPLETED:
                raise NotAccepted(f"the step is {seen.status}: only a completed step has a result to accept")
            return {
                "status": Status.COMPLETED.value,
                "input_digest": None,
                "resolutions": [*_kept(seen), self._entry(seen, "accepted for another input", note)],
            }

        self._amend(step_path(self.pipeline, run_id, step, item), change)
        self._say("operator.accepted", run_id, note, step=step, item=item, previous=attempt_id)

    def redo(self, run_id: str, step: str, item: str | None, *, attempt_id: str, note: str) -> None:
        """Forget the outcome of a step that no attempt is at work on: the next attempt runs the body, with whatever
        input it gets and under the same idempotency key. Raises NotAccepted, StoreError.
        """

        def change(seen: Record) -> Fields:
            _expect(seen, attempt_id)
            if seen.status is Status.IN_PROGRESS and not seen.abandoned():
                raise NotAccepted(f"an attempt is at work: its lease has {seen.lease_left():.0f} s left")
            return {
                "status": Status.RELEASED.value,
                "result": None,
                "error": None,
                "input_digest": None,
                "attempts": 0,
                "crashes": 0,
                "started": None,
                "expire_at": self.protocol.host.now() + self.retention,
                "resolutions": [*_kept(seen), self._entry(seen, "to be done again", note)],
            }

        self._amend(step_path(self.pipeline, run_id, step, item), change)
        self._say("operator.redone", run_id, note, step=step, item=item, previous=attempt_id)

    def cancelling(self, run_id: str, *, attempt_id: str, note: str) -> None:
        """Keep in the run's record that its execution is cancelled, before it is. Raises NotAccepted, StoreError."""

        def change(seen: Record) -> Fields:
            _expect(seen, attempt_id)
            return {
                "status": seen.status.value,
                "resolutions": [*_kept(seen), self._entry(seen, f"cancelled {seen.fields.get('execution')}", note)],
            }

        self._amend(run_path(self.pipeline, run_id), change)
        self._say("operator.cancelled", run_id, note)

    def resume(self, run_id: str, starter: Starter, *, note: str, attempt_id: str | None = None) -> str:
        """Start a new execution of a run that was started before; its name. What is done is not done again.

        `attempt_id` is the record's that the operator saw. A mark in the record keeps a second operator out until the
        execution is recorded, or for `RESUMING` if this process dies. A run that has not been started is delivered
        instead (`launching.Launcher`). Raises NotAccepted, StoreError.
        """
        path = run_path(self.pipeline, run_id)
        record = self.protocol.read(path)
        if record is None or record.status is not Status.STARTED:
            raise NotAccepted(f"run {run_id} is {record.status if record else 'unknown here'}: it has no execution yet")

        def mark(seen: Record) -> Fields:
            other = seen.fields.get("resuming")
            if other and seen.read_time - other["when"] < RESUMING:
                raise NotAccepted(f"{other['who']} is resuming it at this moment ({other['why'] or 'no reason given'})")
            _expect(seen, attempt_id or record.attempt_id)
            return {
                "status": seen.status.value,
                "resuming": {"who": self.who, "when": seen.read_time, "why": note},
            }

        self._amend(path, mark)
        execution = starter.start(RunContext.from_json(json.loads(record.fields["run"])))

        def change(seen: Record) -> Fields:
            return {
                "status": seen.status.value,
                "execution": execution,
                "resuming": None,
                "expire_at": self.protocol.host.now() + self.retention + RUN_OUTLIVES_STEPS,
                "resolutions": [*_kept(seen), self._entry(seen, f"resumed as {execution}", note)],
            }

        self._amend(path, change)
        self._say("operator.resumed", run_id, note, execution=execution)
        return execution

    def _amend(self, path: str, change: Callable[[Record], Fields]) -> None:
        self.protocol.amend(path, self.protocol.host.new_id(), change)

    def _entry(self, seen: Record, what: str, note: str) -> Fields:
        return {
            "who": self.who,
            "when": seen.read_time,
            "why": note,
            "what": what,
            "status": seen.status.value,
            "attempt_id": seen.attempt_id,
            "attempts": seen.attempts,
            "error": seen.fields.get("error"),
        }

    def _say(self, event: str, run_id: str, note: str, **about: Any) -> None:
        self.log(event, reason=note, pipeline=self.pipeline, run_id=run_id, who=self.who, **about)


def _expect(seen: Record, attempt_id: str) -> None:
    if seen.attempt_id != attempt_id:
        raise NotAccepted(f"the record has changed since: it is {seen.status}, attempt {seen.attempt_id}; look again")


def _kept(seen: Record) -> list[Any]:
    return list(seen.fields.get("resolutions") or [])
