"""Cloud Scheduler: cron in a time zone, the exact headers, retries, the attempt deadline, and forced runs.

One *execution* is one slot's delivery with its retries, all with the same ScheduleTime. There are never two outstanding
executions of a job: while one is under way the next slot waits, and a slot is skipped when a later one is due too.
Retries end when the next slot is due.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
from cronsim import CronSim, CronSimError

from tools.emulators.clock import Clock
from tools.emulators.events import EventLog
from tools.emulators.tokens import Tokens
from tools.errors import UserError

USER_AGENT = "Google-Cloud-Scheduler"


class ScheduleError(UserError):
    """Not a schedule that Cloud Scheduler takes as unix-cron; the text says why."""


class OutstandingError(Exception):
    """The job has an execution under way: there is no second one beside it."""


@dataclass(frozen=True)
class RetryPolicy:
    """`--max-retry-attempts`, `--max-retry-duration`, `--min-backoff`, `--max-backoff`, `--max-doublings`; seconds.

    `max_attempts` counts retries, the first attempt not among them. Where both limits are set the documentation says
    that retries go on "until both limits are reached", which can be read in two ways: here the first limit that is
    reached ends them, the reading in which a slot gets fewer chances.
    """

    max_attempts: int = 0
    max_duration: float = 0.0
    min_backoff: float = 5.0
    max_backoff: float = 3600.0
    max_doublings: int = 5

    def gap(self, retry: int) -> float:
        """Seconds to wait before the nth retry (from 1).

        It doubles `max_doublings` times, then grows by the last doubled value, up to `max_backoff`.
        """
        doublings = min(retry - 1, self.max_doublings)
        top = self.min_backoff * float(2**doublings)
        return min(self.max_backoff, top * (1 + retry - 1 - doublings))

    def next_gap(self, retries: int, elapsed: float) -> float | None:
        """Seconds until the next retry after `retries`, `elapsed` since the first attempt began; None: no more."""
        if retries >= self.max_attempts:
            return None
        gap = self.gap(retries + 1)
        if self.max_duration and elapsed + gap > self.max_duration:
            return None
        return gap


@dataclass(frozen=True)
class Job:
    """One job; times in seconds. `name` is the short id that goes into the header."""

    name: str
    schedule: str
    time_zone: str
    url: str
    account: str
    audience: str
    retry: RetryPolicy = RetryPolicy()
    attempt_deadline: float = 180.0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Attempt:
    """One call of the target: its status, or why there was none; times in seconds since the epoch."""

    began: float
    ended: float
    status: int | None
    error: str | None
    answer: str = ""

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass
class Execution:
    """One slot's delivery. `forced`: by hand, so that its ScheduleTime is the next slot's."""

    slot: datetime
    forced: bool = False
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        return bool(self.attempts) and self.attempts[-1].succeeded


def slots(schedule: str, time_zone: str, after: float) -> Iterator[datetime]:
    """The slots after an instant, in UTC. Raises ScheduleError.

    Wall-clock time: where clocks go forward a slot in the gap is moved, where they go back one may come twice.
    """
    if len(schedule.split()) != 5:
        raise ScheduleError(f"{schedule!r} is not unix-cron: five fields are needed, such as 0 3 * * *")
    try:
        found = CronSim(schedule, datetime.fromtimestamp(after, ZoneInfo(time_zone)))
    except (CronSimError, KeyError, ValueError) as error:
        raise ScheduleError(f"schedule {schedule!r} in time zone {time_zone!r}: {error}") from None
    return (slot.astimezone(UTC) for slot in found)


def rfc3339(instant: datetime) -> str:
    """As Scheduler writes it: UTC, whole seconds, `Z`."""
    return instant.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Scheduler:
    """Runs one job. With `state` an execution that was under way goes on after a restart, and a pause holds."""

    def __init__(self, job: Job, tokens: Tokens, clock: Clock, log: EventLog, state: Path | None = None) -> None:
        self.job = job
        self._tokens = tokens
        self._clock = clock
        self._log = log
        self._state = state
        self._outstanding = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._client = httpx.Client(timeout=None, trust_env=False)
        next(slots(job.schedule, job.time_zone, clock.now()))  # refuses a bad schedule here, not in the thread
        saved = json.loads(state.read_text()) if state and state.exists() else {}
        self.paused = bool(saved.get("paused"))
        self._resumed: dict[str, Any] | None = saved.get("outstanding")

    def start(self) -> None:
        """Deliver by the cron from now on."""
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No new attempt; one under way is left to its target."""
        self._stopped = True
        self._wake.set()
        if self._thread:
            self._thread.join()
        self._client.close()

    def pause(self, paused: bool) -> None:
        """While it is paused no slot is delivered, and those that pass are not made up for."""
        self.paused = paused
        self._save(None)
        self._log.add("scheduler", "scheduler.paused" if paused else "scheduler.resumed")

    def next_slot(self) -> datetime:
        """The slot that is due next, in UTC."""
        return next(slots(self.job.schedule, self.job.time_zone, self._clock.now()))

    def force(self) -> Execution:
        """What `gcloud scheduler jobs run` does: now, with the next slot's time. Raises OutstandingError."""
        return self.deliver(self.next_slot(), forced=True)

    def deliver(self, slot: datetime, forced: bool = False) -> Execution:
        """Deliver one slot with its retries; returns when it has succeeded or nothing more is tried.

        Raises OutstandingError while another execution of the job is under way.
        """
        if not self._outstanding.acquire(blocking=False):
            raise OutstandingError(f"job {self.job.name} has an execution under way")
        try:
            execution = Execution(slot.astimezone(UTC), forced)
            self._execute(execution, self._clock.now(), 0)
            return execution
        finally:
            self._outstanding.release()

    def attempt(self, slot: datetime, number: int = 1) -> Attempt:
        """One call of the target, as a retry or a duplicate makes it, whatever else is under way."""
        began = self._clock.now()
        answer: list[httpx.Response | str] = []
        answered = threading.Event()

        mark = self._clock.hold()

        def follow(event: str, _: Any) -> None:
            """The target marks its own work from the arrival of the request until it has answered."""
            if event == "http11.send_request_body.complete":
                mark.off()
            elif event == "http11.receive_response_headers.complete":
                mark.on()

        def call() -> None:
            try:
                headers, extensions = self._headers(slot), {"trace": follow}
                target, body = self.job.url, self.job.body
                answer.append(self._client.post(target, content=body, headers=headers, extensions=extensions))
            except httpx.HTTPError as error:
                answer.append(f"{type(error).__name__}: {error}")
            answered.set()
            mark.off()

        mark.on()
        threading.Thread(target=call, name="attempt", daemon=True).start()
        in_time = self._clock.sleep(self.job.attempt_deadline, answered) or answered.is_set()
        got = answer[0] if in_time else f"DEADLINE_EXCEEDED after {self.job.attempt_deadline:g} s"
        ended = self._clock.now()
        attempt = (
            Attempt(began, ended, None, got)
            if isinstance(got, str)
            else Attempt(began, ended, got.status_code, None, got.text)
        )
        self._log.add(
            "scheduler",
            "scheduler.attempt",
            slot=rfc3339(slot),
            attempt=number,
            status=attempt.status,
            reason=attempt.error,
            severity="INFO" if attempt.succeeded else "WARNING",
        )
        return attempt

    def _headers(self, slot: datetime) -> dict[str, str]:
        token = self._tokens.mint(self.job.audience, self.job.account, self._clock.now())
        return {
            "User-Agent": USER_AGENT,
            "X-CloudScheduler": "true",
            "X-CloudScheduler-JobName": self.job.name,
            "X-CloudScheduler-ScheduleTime": rfc3339(slot),
            "Content-Type": "application/octet-stream",
            **self.job.headers,
            "Authorization": f"Bearer {token}",
        }

    def _execute(self, execution: Execution, first: float, retries: int) -> None:
        """Attempts until one succeeds, the policy ends them, or the next slot is due."""
        due = next(slots(self.job.schedule, self.job.time_zone, max(first, execution.slot.timestamp()))).timestamp()
        while not self._stopped:
            self._save({"slot": rfc3339(execution.slot), "first": first, "retries": retries})
            execution.attempts.append(self.attempt(execution.slot, retries + 1))
            now = self._clock.now()
            gap = None if execution.succeeded else self.job.retry.next_gap(retries, now - first)
            if gap is not None and not execution.forced and now + gap >= due:
                self._log.add("scheduler", "scheduler.gave_up", slot=rfc3339(execution.slot), reason="next slot is due")
                gap = None
            if gap is None:
                break
            retries += 1
            self._clock.sleep(gap, self._wake)
        if not self._stopped:
            self._save(None)
            if not execution.succeeded:
                self._log.add("scheduler", "scheduler.failed", severity="ERROR", slot=rfc3339(execution.slot))

    def _run(self) -> None:
        self._continue()
        since = self._clock.now()
        while not self._stopped:
            slot = next(slots(self.job.schedule, self.job.time_zone, since))
            if (left := slot.timestamp() - self._clock.now()) > 0:
                self._clock.sleep(left, self._wake)
                continue
            since = slot.timestamp()
            later = next(slots(self.job.schedule, self.job.time_zone, since))
            if self.paused:
                continue
            if later.timestamp() <= self._clock.now():
                self._log.add("scheduler", "scheduler.skipped", severity="WARNING", slot=rfc3339(slot))
                continue
            with self._outstanding:
                self._execute(Execution(slot), self._clock.now(), 0)

    def _continue(self) -> None:
        """The execution that was under way when the laptop stopped."""
        if self._resumed:
            slot = datetime.fromisoformat(self._resumed["slot"])
            with self._outstanding:
                self._execute(Execution(slot), self._resumed["first"], self._resumed["retries"])

    def _save(self, outstanding: dict[str, Any] | None) -> None:
        if self._state:
            draft = self._state.with_suffix(".new")
            draft.write_text(json.dumps({"paused": self.paused, "outstanding": outstanding}))
            draft.replace(self._state)
