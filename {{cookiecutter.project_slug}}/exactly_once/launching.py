"""One delivery of a slot: claim the run, start its execution, record it. The proxy's whole decision.

What can happen between any two lines, and what makes it harmless:

- killed after the claim: the lease runs out before Scheduler's last retry, which takes over;
- killed, or without an answer, after the start: the next delivery takes over and looks for an execution with the
  run's label; one that the listing does not show yet leads to a second execution of the same run, whose steps replay;
- an error anywhere: the record is released, so the next delivery need not wait for the lease; no error makes a slot
  dead;
- overtaken while starting: another attempt id stands in the record, so neither `started` nor `released` is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol as Interface

from .errors import LeaseLost, Refusal, StoreError
from .identity import RunContext, run_path
from .log import Log
from .protocol import Claim, Offer, Protocol
from .records import Record, Status
from .store import Fields, Patience

RUN_OUTLIVES_STEPS = timedelta(days=2)
"""A run's record is kept longer than its steps', so that no step's record is left without its run."""

RELEASE = Patience(total=5.0, rpc=2.0)
"""What is left of the proxy's 60 s when claim (10), look (10), start (20) and record (10) have failed to answer."""

FORCED_AHEAD = timedelta(seconds=5)


class Starter(Interface):
    """Starts executions. `exactly_once.starting` has the one on Workflows."""

    def find(self, run: RunContext) -> str | None:
        """The name of an execution that carries the run's label, whatever its state. Raises StartError."""
        ...

    def start(self, run: RunContext) -> str:
        """Start one; its name. Sent once. Raises StartError, after which it may have been started nevertheless."""
        ...


class StartError(StoreError):
    """Workflows gave no usable answer."""


@dataclass(frozen=True)
class Started:
    """A run that has its execution, or waits for its turn."""

    execution: str
    by_us: bool
    """False: an earlier delivery recorded it."""
    status: Status = Status.STARTED
    """`queued` or `skipped`: it has no execution, since another run is at work (`Overlap`)."""


class Overlap(Interface):
    """What a slot does while another run is at work. `exactly_once.overlap` has the one on the records.

    `waits`: the status of a slot that may not start, `queued` or `skipped`.
    """

    waits: Status

    def obstacle(self, run: RunContext) -> str | None:
        """Why the run, which is claimed and has no execution, may not start now. Raises StoreError."""
        ...

    def waiting(self) -> list[RunContext]:
        """What is recorded, has not been started, and is in nobody's hands; earliest slot first. Raises StoreError."""
        ...


@dataclass(frozen=True)
class ByHand:
    """Who starts a run by hand, and why; kept in its record."""

    who: str
    why: str


@dataclass(frozen=True)
class Launcher:
    """Carries out deliveries. `lease` is in seconds.

    Without `overlap` runs may overlap. What is started `by` hand waits for nothing, and starts what was skipped.
    """

    pipeline: str
    protocol: Protocol
    starter: Starter
    lease: float
    retention: timedelta
    overlap: Overlap | None = None
    by: ByHand | None = None

    def deliver(self, run: RunContext, log: Log) -> Started:
        """Raises Refusal (busy), LeaseLost, StoreError."""
        attempt_id = self.protocol.host.new_id()
        log = log.about(run_id=run.run_id, attempt_id=attempt_id)
        claim = self.protocol.claim(run_path(self.pipeline, run.run_id), self._offer(run, attempt_id))
        if isinstance(claim, Record):
            log("run.duplicate", attempt=claim.attempts)
            return Started(str(claim.fields.get("execution") or ""), by_us=False, status=claim.status)
        log = log.about(attempt=claim.attempt)
        log("run.taken_over" if claim.before else "run.claimed")
        try:
            return self._start(run, claim, log)
        except LeaseLost as error:
            log("run.fenced", reason=str(error))
            raise
        except Exception as error:
            self._release(claim, error, log)
            raise

    def sweep(self, log: Log) -> list[tuple[RunContext, Started]]:
        """Deliver what waits, in order of slots, as long as it may start; what came of each.

        A crash anywhere loses nothing: what was not started is found by the next sweep. Raises as `deliver` does.
        """
        done: list[tuple[RunContext, Started]] = []
        for run in self.overlap.waiting() if self.overlap else []:
            done.append((run, self.deliver(run, log)))
            if run.kind != "manual":
                break  # whether it was started now or waits on: what comes after it waits
        return done

    def _start(self, run: RunContext, claim: Claim, log: Log) -> Started:
        found = self.starter.find(run) if claim.before else None
        if not found and (waits := self._wait(run, claim, log)):
            return waits
        execution = found or self.starter.start(run)
        self.protocol.settle(claim, {"status": Status.STARTED.value, "execution": execution}, (Status.IN_PROGRESS,))
        log("run.adopted" if found else "run.started", execution=execution)
        return Started(execution, by_us=True)

    def _wait(self, run: RunContext, claim: Claim, log: Log) -> Started | None:
        """Where the policy says so, the record says that the slot waits, or that it is skipped."""
        if self.overlap is None or self.by or run.kind == "manual":
            return None
        reason = self.overlap.obstacle(run)
        if reason is None:
            return None
        waits = self.overlap.waits
        self.protocol.settle(claim, {"status": waits.value, "why": reason}, (Status.IN_PROGRESS,))
        log(f"run.{waits.value}", reason=reason)
        return Started("", by_us=True, status=waits)

    def _release(self, claim: Claim, cause: Exception, log: Log) -> None:
        released: Fields = {"status": Status.RELEASED.value}
        try:
            self.protocol.settle(claim, released, (Status.IN_PROGRESS,), RELEASE)
            # the text of what is not our own may hold what no log should
            log("run.released", reason=str(cause) if isinstance(cause, StoreError) else type(cause).__name__)
        except LeaseLost as error:  # taken over, or `started` was applied after all
            log("run.fenced", reason=str(error))
        except StoreError as error:
            log("run.error", reason=f"not released, the lease will run out: {error}")

    def _offer(self, run: RunContext, attempt_id: str) -> Offer:
        expiry = self.protocol.host.now() + self.retention + RUN_OUTLIVES_STEPS
        context = run.to_json()
        fields: Fields = {
            "execution": None,
            "run": json.dumps(context, ensure_ascii=False),
            **{name: context[name] for name in ("job", "slot", "kind", "key")},
            "expire_at": expiry,
        }
        again: Fields = {"expire_at": expiry}
        if self.by:
            by = {"who": self.by.who, "why": self.by.why}
            fields, again = {**fields, "by": by}, {**again, "by": by}
        return Offer(attempt_id, self.lease, fields, self._may_take, lambda seen: again)

    def _may_take(self, record: Record) -> bool:
        """False: the run is started, or skipped for good. Raises Refusal (busy)."""
        if record.status is Status.SKIPPED:
            return self.by is not None
        return _may_take(record)


def _may_take(record: Record) -> bool:
    """False: the run is started. Raises Refusal (busy)."""
    if record.status is Status.STARTED:
        return False
    if record.status is Status.IN_PROGRESS and record.lease_left() > 0:
        message = f"another delivery is starting the run; its lease has {record.lease_left():.0f} s left"
        raise Refusal("busy", message, "run.busy")
    return True


def is_forced(slot: datetime, now: datetime, server_time: Callable[[], datetime]) -> bool:
    """Whether a ScheduleTime belongs to a run that somebody forced: it is the next slot's, so still to come.

    Only a slot that our own clock puts more than 5 s ahead costs the read that lets the server's clock confirm it.
    """
    return slot > now + FORCED_AHEAD and slot > server_time() + FORCED_AHEAD
