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
    """A run that has its execution."""

    execution: str
    by_us: bool
    """False: an earlier delivery recorded it."""


@dataclass(frozen=True)
class Launcher:
    """Carries out deliveries. `lease` is in seconds."""

    pipeline: str
    protocol: Protocol
    starter: Starter
    lease: float
    retention: timedelta

    def deliver(self, run: RunContext, log: Log) -> Started:
        """Raises Refusal (busy), LeaseLost, StoreError."""
        attempt_id = self.protocol.host.new_id()
        log = log.about(run_id=run.run_id, attempt_id=attempt_id)
        claim = self.protocol.claim(run_path(self.pipeline, run.run_id), self._offer(run, attempt_id))
        if isinstance(claim, Record):
            log("run.duplicate", attempt=claim.attempts)
            return Started(str(claim.fields["execution"]), by_us=False)
        log = log.about(attempt=claim.attempt)
        log("run.taken_over" if claim.before else "run.claimed")
        # An overlap policy other than "allow" decides here, where the slot is ours and nothing has been started.
        try:
            return self._start(run, claim, log)
        except LeaseLost as error:
            log("run.fenced", reason=str(error))
            raise
        except Exception as error:
            self._release(claim, error, log)
            raise

    def _start(self, run: RunContext, claim: Claim, log: Log) -> Started:
        found = self.starter.find(run) if claim.before else None
        execution = found or self.starter.start(run)
        self.protocol.settle(claim, {"status": Status.STARTED.value, "execution": execution}, (Status.IN_PROGRESS,))
        log("run.adopted" if found else "run.started", execution=execution)
        return Started(execution, by_us=True)

    def _release(self, claim: Claim, cause: Exception, log: Log) -> None:
        released: Fields = {"status": Status.RELEASED.value}
        try:
            self.protocol.settle(claim, released, (Status.IN_PROGRESS,), RELEASE)
            log("run.released", reason=str(cause))
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
        return Offer(attempt_id, self.lease, fields, _may_take, lambda seen: {"expire_at": expiry})


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
