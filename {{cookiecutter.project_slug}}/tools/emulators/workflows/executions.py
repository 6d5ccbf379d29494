"""The Workflow Executions API, version 1: executions, their step entries and callbacks.

Every `create` starts another execution: there is no idempotency key and no chosen id. Executions are written to the
journal when they are created and when they end; those that were under way when the emulator ended are FAILED.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from ..clock import Clock
from . import filters
from .deployments import CALL_LOG_LEVELS, HISTORY_LEVELS, Deployments
from .journal import Journal
from .limits import ARGUMENT_LIMIT
from .resources import (
    EXECUTION_NAME,
    WORKFLOW_NAME,
    Resource,
    check_choice,
    check_fields,
    check_labels,
    page,
    parse_name,
    rfc3339,
    seconds_of,
)
from .runner import Runner, Running, interrupted
from .runtime import Stop
from .status import ApiError, invalid, not_found

VIEWS = ("EXECUTION_VIEW_UNSPECIFIED", "BASIC", "FULL")

ACTIVE = ("ACTIVE", "QUEUED")

KEPT = 90 * 24 * 3600.0
"""Seconds after which an execution that has ended is forgotten."""

_BASIC = ("name", "startTime", "endTime", "duration", "state", "workflowRevisionId")
_INPUT = frozenset(
    {"argument", "callLogLevel", "executionHistoryLevel", "labels", "disableConcurrencyQuotaOverflowBuffering"}
)
_OUTPUT = frozenset({*_BASIC, "createTime", "result", "error", "status", "stateError"})

FIELDS: filters.Fields = {
    "executionId": ("string", lambda execution: execution["name"].rpartition("/")[2]),
    "state": filters.field("state", "enum"),
    "createTime": filters.field("createTime", "time"),
    "startTime": filters.field("startTime", "time"),
    "endTime": filters.field("endTime", "time"),
    "duration": filters.field("duration", "duration"),
    "workflowRevisionId": filters.field("workflowRevisionId"),
    "stepName": (
        "list",
        lambda execution: [step["step"] for step in execution.get("status", {}).get("currentSteps", ())],
    ),
    "label": filters.field("labels", "map"),
    "labels": filters.field("labels", "map"),
    "disableConcurrencyQuotaOverflowBuffering": (
        "boolean",
        lambda execution: execution.get("disableConcurrencyQuotaOverflowBuffering", False),
    ),
}

ENTRY_FIELDS: filters.Fields = {
    "entryId": filters.field("entryId", "number"),
    "createTime": filters.field("createTime", "time"),
    "updateTime": filters.field("updateTime", "time"),
    "routine": filters.field("routine"),
    "step": filters.field("step"),
    "stepType": filters.field("stepType", "enum"),
    "parent": ("number", lambda entry: entry.get("navigationInfo", {}).get("parent")),
    "state": ("enum", lambda entry: entry["state"].removeprefix("STATE_")),
}


class Executions:
    """Keeps executions by name, in the order of their creation. Thread-safe.

    A record is the API's resource with `seq` beside it, which counts creations.
    """

    def __init__(self, deployments: Deployments, journal: Journal, clock: Clock, runner: Runner) -> None:
        self._deployments = deployments
        self._journal = journal
        self._clock = clock
        self._runner = runner
        self._lock = threading.RLock()
        self._records: dict[str, dict[str, Resource]] = {}
        self._running: dict[str, Running] = {}
        self._seq = 0
        self._load()
        deployments.deleted = self._forget

    def _load(self) -> None:
        """Read the journal: forget what is old, and fail what was cut short."""
        now = self._clock.now()
        for record in list(self._journal.all("execution")):
            self._seq = max(self._seq, record["seq"])
            if record["state"] in ACTIVE:
                self._settle(record, interrupted(), now)
            elif now - seconds_of(record["endTime"]) > KEPT:
                self._journal.delete("execution", record["name"])
                self._journal.delete("steps", record["name"])
                continue
            self._siblings(record["name"])[record["name"]] = record

    def _forget(self, workflow: str) -> None:
        """The workflow has been deleted, and its executions with it."""
        with self._lock:
            for name in self._records.pop(workflow, {}):
                if name in self._running:
                    self._cancel(self._running[name])
                self._journal.delete("execution", name)
                self._journal.delete("steps", name)

    def _siblings(self, name: str) -> dict[str, Resource]:
        return self._records.setdefault(name.partition("/executions/")[0], {})

    # --- the API

    def create_execution(self, request: Resource) -> Resource:
        """Start an execution of the latest revision. `request`: parent, execution. Raises ApiError."""
        running = self._admit(str(request.get("parent")), request.get("execution", {}))
        try:
            self._runner.start(running)
        except ApiError:
            running.end(**interrupted())
            raise
        return running.created or self._full(running.record)

    def wait(self, name: str, seconds: float, stop: Stop | None = None) -> Resource:
        """The execution once it has ended, after `seconds` on the clock, or when `stop` is set: as it is then."""
        with self._lock:
            self._record(name)
            running = self._running.get(name)
        if running is not None:
            woken = threading.Event()
            signals = [signal for signal in (running.over, stop) if signal is not None]
            for signal in signals:
                signal.watch(woken.set)
            self._clock.sleep(seconds, woken)
            for signal in signals:
                signal.unwatch(woken.set)
        return self.get_execution({"name": name})

    def _admit(self, parent: str, given: object) -> Running:
        """Check the request, and make and write the record."""
        parse_name(WORKFLOW_NAME, parent, "parent")
        execution = check_fields(given, _INPUT | _OUTPUT, "execution")
        argument = _checked_argument(execution.get("argument"))
        level = check_choice(execution.get("callLogLevel"), CALL_LOG_LEVELS, "callLogLevel")
        history = check_choice(execution.get("executionHistoryLevel"), HISTORY_LEVELS, "executionHistoryLevel")
        own_labels = check_labels(execution.get("labels", {}))
        deployed = self._deployments.latest(parent)
        workflow = deployed.workflow
        if execution.get("disableConcurrencyQuotaOverflowBuffering") and self._runner.full():
            raise ApiError("RESOURCE_EXHAUSTED", "as many executions as are allowed are running")
        with self._lock:
            self._seq += 1
            record: Resource = {
                "seq": self._seq,
                "name": f"{parent}/executions/{self._runner.new_id()}",
                "createTime": rfc3339(self._clock.now()),
                "state": "QUEUED",
                "argument": argument,
                "workflowRevisionId": workflow["revisionId"],
                "callLogLevel": level or workflow.get("callLogLevel"),
                "labels": check_labels({**workflow.get("labels", {}), **own_labels}),
            }
            if history or workflow.get("executionHistoryLevel"):
                record["executionHistoryLevel"] = history or workflow["executionHistoryLevel"]
            if execution.get("disableConcurrencyQuotaOverflowBuffering"):
                record["disableConcurrencyQuotaOverflowBuffering"] = True
            self._siblings(record["name"])[record["name"]] = record
            running = self._runner.prepare(record, deployed, self._began, self._ended)
            self._running[record["name"]] = running
            self._journal.put("execution", record["name"], record)
        return running

    def get_execution(self, request: Resource) -> Resource:
        """`request`: name, view (FULL without)."""
        view = check_choice(request.get("view"), VIEWS, "view") or "FULL"
        with self._lock:
            record = self._record(request.get("name"))
            return self._full(record) if view == "FULL" else _basic(record)

    def list_executions(self, request: Resource) -> Resource:
        """Newest first. `request`: parent, pageSize, pageToken, view (BASIC without), filter, orderBy.

        A page has 100 by default, and at most 1000 (BASIC) or 100 (FULL).
        """
        parent = str(request.get("parent"))
        parse_name(WORKFLOW_NAME, parent, "parent")
        view = check_choice(request.get("view"), VIEWS, "view") or "BASIC"
        test = filters.compile_filter(request.get("filter"), FIELDS)
        self._deployments.require(parent)
        with self._lock:
            newest_first = [self._current(record) for record in reversed(self._records.get(parent, {}).values())]
        passing = [record for record in newest_first if test(record)]
        ordered = filters.sorted_by(passing, request.get("orderBy"), FIELDS, "createTime desc")
        most = 100 if view == "FULL" else 1000
        found, token = page(ordered, request, default=100, most=most, serial="seq")
        shown = [self._full(record) if view == "FULL" else _basic(record) for record in found]
        return {"executions": shown, **({"nextPageToken": token} if token else {})}

    def cancel_execution(self, request: Resource) -> Resource:
        """Cancelled at once; a call that is under way is abandoned. `request`: name."""
        with self._lock:
            record = self._record(request.get("name"))
            if record["state"] not in ACTIVE:
                raise ApiError("FAILED_PRECONDITION", f"the execution is not active but {record['state']}")
            self._cancel(self._running[record["name"]])
            return self._full(record)

    def _cancel(self, running: Running) -> None:
        running.end("CANCELLED", error={"context": "The execution was cancelled.", "payload": '"cancelled"'})
        running.stop.set()

    def list_step_entries(self, request: Resource) -> Resource:
        """`request`: parent (an execution), pageSize (1000 at most), pageToken, skip, filter, orderBy, view."""
        with self._lock:
            record = self._record(request.get("parent"))
            running = self._running.get(record["name"])
        if running is not None:
            entries, total = running.history.entries(), running.history.steps
        else:
            entries, total = self._stored_entries(record["name"]), record.get("steps", 0)
        test = filters.compile_filter(request.get("filter"), ENTRY_FIELDS)
        passing = [entry for entry in entries if test(entry)]
        ordered = filters.sorted_by(passing, request.get("orderBy"), ENTRY_FIELDS, "entryId")
        found, token = page(ordered[int(request.get("skip") or 0) :], request, default=1000, most=1000)
        size = total if not request.get("filter") else len(passing)
        return {"stepEntries": found, "totalSize": size, **({"nextPageToken": token} if token else {})}

    def get_step_entry(self, request: Resource) -> Resource:
        name = str(request.get("name"))
        execution, _, _ = name.partition("/stepEntries/")
        for entry in self.list_step_entries({"parent": execution})["stepEntries"]:
            if entry["name"] == name:
                found: Resource = entry
                return found
        raise not_found(name)

    def _stored_entries(self, name: str) -> list[Resource]:
        stored = self._journal.get("steps", name)
        return stored if isinstance(stored, list) else []

    def delete_execution_history(self, request: Resource) -> Resource:
        with self._lock:
            record = self._record(request.get("name"))
            if record["state"] in ACTIVE:
                raise ApiError("FAILED_PRECONDITION", "the execution has not ended")
            self._journal.delete("steps", record["name"])
            record["steps"] = 0
            self._journal.put("execution", record["name"], record)
        return {}

    def export_data(self, request: Resource) -> Resource:
        """Everything kept of an execution, as JSON text."""
        with self._lock:
            record = self._full(self._record(request.get("name")))
        entries = self.list_step_entries({"parent": record["name"]})["stepEntries"]
        return {"data": json.dumps({"execution": record, "stepEntries": entries})}

    def list_callbacks(self, request: Resource) -> Resource:
        with self._lock:
            record = self._record(request.get("parent"))
        found, token = page(self._runner.callbacks.listed(record["name"]), request, default=100, most=100)
        return {"callbacks": found, **({"nextPageToken": token} if token else {})}

    # --- parts

    def _record(self, name: object) -> Resource:
        parse_name(EXECUTION_NAME, name, "execution name")
        record = self._siblings(str(name)).get(str(name))
        if record is None:
            raise not_found(str(name))
        return record

    def _current(self, record: Resource) -> Resource:
        """The record, with the steps it is at if it is running."""
        running = self._running.get(record["name"])
        return {**record, "status": running.history.current_steps()} if running is not None else dict(record)

    def _full(self, record: Resource) -> Resource:
        with self._lock:
            shown = self._current(record)
        return {key: value for key, value in shown.items() if key not in ("seq", "steps") and value is not None}

    def _began(self, running: Running) -> bool:
        """The runner has a thread for it. False if it has been cancelled meanwhile."""
        with self._lock:
            if running.record["state"] != "QUEUED":
                return False
            running.record["state"] = "ACTIVE"
            running.record["startTime"] = rfc3339(self._clock.now())
            running.created = self._full(running.record)
            return True

    def _ended(self, running: Running, outcome: Resource) -> None:
        """The first outcome counts: what a cancelled execution still did changes nothing."""
        record = running.record
        if record["state"] not in ACTIVE:
            return
        entries = running.history.entries()
        with self._lock:
            if record["state"] not in ACTIVE:
                return
            record["status"] = running.history.current_steps()
            record["steps"] = running.history.steps
            self._settle(record, outcome, self._clock.now())
            self._journal.put("steps", record["name"], entries)
            self._runner.callbacks.drop(record["name"])
            del self._running[record["name"]]
        running.over.set()

    def _settle(self, record: Resource, outcome: Resource, now: float) -> None:
        record.update(outcome)
        record["endTime"] = rfc3339(now)
        record.setdefault("startTime", record["endTime"])
        record["duration"] = f"{max(0.0, now - seconds_of(record['startTime'])):.6f}s"
        self._journal.put("execution", record["name"], record)


def _basic(record: Resource) -> Resource:
    return {key: record[key] for key in _BASIC if key in record}


def _checked_argument(argument: object) -> str | None:
    """The argument as given: JSON of at most 32 KiB. Raises ApiError INVALID_ARGUMENT."""
    if argument is None or argument == "":
        return None
    if not isinstance(argument, str):
        raise invalid("argument has to be a string that holds JSON")
    if len(argument.encode()) > ARGUMENT_LIMIT:
        raise invalid(f"argument: {len(argument.encode())} bytes are more than the limit of {ARGUMENT_LIMIT}")
    try:
        json.loads(argument, parse_constant=_refuse_constant)
    except ValueError as error:
        raise invalid(f"argument is not JSON: {error}") from None
    return argument


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
