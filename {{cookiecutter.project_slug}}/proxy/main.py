"""Cloud Scheduler's target: claims the run of a slot and starts its workflow.

Answers 200 {"run_id", "execution", "status": "started" | "already_started" | "queued" | "skipped", ...}; 400 when the
headers say no run; 409 while another delivery starts it; 500 when nothing was started, so that Scheduler delivers
again. Never 503. With ON_OVERLAP=queue a job of its own sends the header X-Exactly-Once-Sweep every minute: what waits
is started when its turn has come.

Time-outs: claim 10 s, look 10 s, start 20 s, record 10 s, together below the function's 60 s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from exactly_once.contract import Response, as_json, refusal
from exactly_once.errors import ConfigurationError, LeaseLost, Refusal, StoreError
from exactly_once.firestore import FirestoreStore
from exactly_once.identity import RunContext, instant_text, is_job, manual_run, parse_instant, run_path, slot_run
from exactly_once.launching import Launcher, Started, is_forced
from exactly_once.log import Log, trace_of, traceback_text
from exactly_once.lookups import Lookups
from exactly_once.overlap import RecordedOverlap
from exactly_once.protocol import Protocol
from exactly_once.records import Status
from exactly_once.runtime import client, on_laptop
from exactly_once.settings import ProxySettings, proxy_settings
from exactly_once.starting import WorkflowsStarter
from exactly_once.store import Host

JOB = "x-cloudscheduler-jobname"
TIME = "x-cloudscheduler-scheduletime"
SCOPE = "x-exactly-once-scope"
KEY = "x-exactly-once-key"
SWEEP = "x-exactly-once-sweep"

OVERLAP = {"skip": Status.SKIPPED, "queue": Status.QUEUED}
"""ON_OVERLAP -> what becomes of a slot while another run is at work."""


class Proxy:
    """One process's proxy."""

    def __init__(self, settings: ProxySettings, launcher: Launcher, log: Log, sweeper: Launcher | None = None) -> None:
        """`sweeper` starts what is queued, whatever the policy is by now; without it, the launcher does."""
        self.settings = settings
        self.launcher = launcher
        self.sweeper = sweeper or launcher
        self.log = log

    def answer(self, headers: Mapping[str, str]) -> Response:
        """One delivery. Every refusal and error has its line in the log."""
        log = self.log.about(pipeline=self.settings.pipeline, trace=trace_of(headers, self.settings.project))
        try:
            if any(name.lower() == SWEEP for name in headers):
                return self._sweep(log)
            run = self.run_of(headers)
            log = log.about(run_id=run.run_id, slot=run.slot and instant_text(run.slot), kind=run.kind)
            started = self.launcher.deliver(run, log)
        except Refusal as error:
            if error.event:
                log(error.event, reason=error.message)
            return refusal(error)
        except LeaseLost as error:
            return refusal(Refusal("fenced", f"another delivery took the run over: {error}"))
        except StoreError as error:
            log("run.error", reason=str(error))
            return refusal(Refusal("unreachable", str(error)))
        except Exception as error:
            text = traceback_text(error, whole=on_laptop(os.environ))
            log("run.error", reason=type(error).__name__, traceback=text)
            return refusal(Refusal("error", type(error).__name__))
        return as_json(
            200,
            {
                "run_id": run.run_id,
                "execution": started.execution,
                "status": _word(started),
                "kind": run.kind,
                "slot": run.slot and instant_text(run.slot),
            },
        )

    def _sweep(self, log: Log) -> Response:
        done = self.sweeper.sweep(log)
        return as_json(200, {"swept": [{"run_id": run.run_id, "status": _word(started)} for run, started in done]})

    def run_of(self, headers: Mapping[str, str]) -> RunContext:
        """Which run a delivery is for. Headers identify; they never authenticate. Raises Refusal, StoreError."""
        found = {name.lower(): value.strip() for name, value in headers.items()}
        settings, scope = self.settings, self._scope(found.get(SCOPE))
        job, time = found.get(JOB, ""), found.get(TIME, "")
        if KEY in found:
            key, slot = _key(found[KEY]), _slot(time) if time else None
            return manual_run(settings.pipeline, scope, key, job=job, slot=slot, zone=settings.time_zone)
        if not is_job(job):
            raise _malformed(f"X-CloudScheduler-JobName is {'not a job id' if job else 'missing'}: {_ADVICE}")
        if not time:
            raise _malformed(f"X-CloudScheduler-ScheduleTime is missing: {_ADVICE}")
        slot = _slot(time)
        run = slot_run(settings.pipeline, scope, job, slot, settings.time_zone)
        protocol = self.launcher.protocol
        path = run_path(settings.pipeline, run.run_id)
        if is_forced(slot, protocol.host.now(), lambda: protocol.server_time(path)):
            return slot_run(settings.pipeline, scope, job, slot, settings.time_zone, forced=True)
        return run

    def _scope(self, asked: str | None) -> str:
        scopes = self.settings.scopes
        if asked in scopes:
            return str(asked)
        if asked:
            raise _malformed(f"X-Exactly-Once-Scope {asked!r} is not among this proxy's scopes")
        if len(scopes) > 1:
            raise _malformed("X-Exactly-Once-Scope is missing: this proxy serves several; set the header in the job")
        return scopes[0]


_ADVICE = "call through a Cloud Scheduler job with a unix-cron schedule, or give X-Exactly-Once-Key to run by hand"


def _word(started: Started) -> str:
    if started.status is not Status.STARTED:
        return started.status.value
    return "started" if started.by_us else "already_started"


def _key(text: str) -> str:
    """The key as its caller wrote it: WSGI hands out a header's bytes as Latin-1 (PEP 3333)."""
    try:
        key = text.encode("latin-1").decode()
    except UnicodeError as error:
        raise _malformed("X-Exactly-Once-Key is not UTF-8") from error
    if not key:
        raise _malformed("X-Exactly-Once-Key is empty: leave it away for a slot, or give a key of your own")
    return key


def _slot(text: str) -> Any:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise _malformed(f"X-CloudScheduler-ScheduleTime: {error}") from error


def _malformed(message: str) -> Refusal:
    return Refusal("malformed", message, "run.refused")


_lock = threading.Lock()
_proxy: Proxy | None = None


def _current() -> Proxy:
    """Made at the first request: gunicorn forks its worker after the import. Raises ConfigurationError, StoreError."""
    global _proxy
    with _lock:
        if _proxy is None:
            settings = proxy_settings(os.environ)
            store = FirestoreStore(client(settings))
            protocol = Protocol(store, Host())
            starter = WorkflowsStarter(settings.workflow)
            lookups = Lookups(store.client, settings.pipeline)
            policies = {name: RecordedOverlap(waits, lookups, starter) for name, waits in OVERLAP.items()}
            plain = Launcher(settings.pipeline, protocol, starter, settings.lease, settings.retention)
            launcher = replace(plain, overlap=policies.get(settings.on_overlap))
            _proxy = Proxy(settings, launcher, Log(), replace(plain, overlap=policies["queue"]))
        return _proxy


def main(request: Any) -> Response:
    """The entry point for functions-framework."""
    try:
        proxy = _current()
    except (ConfigurationError, StoreError) as error:
        Log()("run.error", reason=str(error))
        return refusal(Refusal("misconfigured", str(error)))
    return proxy.answer(dict(request.headers))
