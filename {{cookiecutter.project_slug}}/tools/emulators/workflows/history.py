"""What is kept and logged of a running execution: its step entries, its current steps, its calls and its logs.

Log entries are dicts of JSON values, one a line in a log: severity, message, event (`workflow.started`, `workflow.log`,
`workflow.call`, `workflow.returned`, `workflow.raised`, `workflow.finished`), time (RFC 3339), workflow, execution,
labels, and where it fits step, routine, data (a map given to sys.log), call, args, result, error, state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .definition import Definition
from .model import Parallel
from .resources import Resource, rfc3339
from .runtime import CallEvent, LogEntry, StepEvent
from .values import to_json

Sink = Callable[[dict[str, Any]], None]

STEPS_KEPT = 10_000
"""Step entries kept of one execution, the first ones; later ones are only counted."""

_TYPES = {
    "assign": "STEP_ASSIGN",
    "switch": "STEP_SWITCH",
    "for": "STEP_FOR",
    "try": "STEP_TRY_RETRY_EXCEPT",
    "return": "STEP_RETURN",
    "raise": "STEP_RAISE",
    "next": "STEP_GOTO",
    "steps": "STEP_TYPE_UNSPECIFIED",
}


class History:
    """Listens to one execution of `definition`, named by its resource name. Called from several threads.

    `watch` sees every step as it begins and ends.
    """

    def __init__(
        self,
        execution: str,
        labels: Mapping[str, str],
        definition: Definition,
        sink: Sink,
        watch: Callable[[StepEvent], None] | None = None,
    ) -> None:
        self._execution = execution
        self._labels = dict(labels)
        self._definition = definition
        self._sink = sink
        self._watch = watch
        self._began: dict[int, StepEvent] = {}
        self._ended: dict[int, StepEvent] = {}
        self._latest: dict[str, StepEvent] = {}
        self.steps = 0

    # --- what the engine calls

    def observe(self, event: StepEvent) -> None:
        if self._watch is not None:
            self._watch(event)
        if event.state == "IN_PROGRESS":
            self.steps += 1
            self._latest[event.branch] = event
            if len(self._began) < STEPS_KEPT:
                self._began[event.id] = event
        elif event.id in self._began:
            self._ended[event.id] = event

    def log(self, entry: LogEntry) -> None:
        """sys.log: always written, whatever the call log level."""
        more = {"data": entry.data} if entry.data is not None else {}
        self._emit("workflow.log", entry.severity, entry.text or "", entry.timestamp, entry.step, entry.routine, more)

    def call(self, event: CallEvent) -> None:
        """Level LOG_ALL_CALLS."""
        more: dict[str, Any] = {"call": event.name, "args": loggable(event.args)}
        if event.error is not None:
            self._raised(event, more)
            return
        more["result"] = loggable(event.result)
        self._emit("workflow.returned", "INFO", f"{event.name} returned", event.time, event.step, event.routine, more)

    def failed_call(self, event: CallEvent) -> None:
        """Level LOG_ERRORS_ONLY."""
        if event.error is not None:
            self._raised(event, {"call": event.name})

    def _raised(self, event: CallEvent, more: dict[str, Any]) -> None:
        more["error"] = loggable(event.error.payload) if event.error is not None else None
        self._emit("workflow.raised", "ERROR", f"{event.name} raised", event.time, event.step, event.routine, more)

    # --- what the API asks

    def lifecycle(self, event: str, severity: str, message: str, time: float, **more: Any) -> None:
        """The execution was started, or has ended."""
        self._emit(event, severity, message, time, "", "", more)

    def current_steps(self) -> Resource:
        """Execution.Status: the step that each branch is at, or ended with."""
        latest = list(self._latest.values())
        return {"currentSteps": [{"routine": event.routine, "step": event.step} for event in latest[-20:]]}

    def entries(self) -> list[Resource]:
        """StepEntry resources in the order of their ids."""
        types = self._step_types()
        return [self._entry(event, types) for _, event in sorted(self._began.copy().items())]

    def _entry(self, began: StepEvent, types: Mapping[tuple[str, str, str], str]) -> Resource:
        last = self._ended.get(began.id, began)
        kind = types.get((began.routine, began.step, began.kind)) or _TYPES.get(began.kind, "STEP_TYPE_UNSPECIFIED")
        entry: Resource = {
            "name": f"{self._execution}/stepEntries/{began.id}",
            "entryId": str(began.id),
            "routine": began.routine,
            "step": began.step,
            "stepType": kind,
            "state": f"STATE_{last.state}",
            "createTime": rfc3339(began.time),
            "updateTime": rfc3339(last.time),
        }
        if began.branch:
            entry["stepEntryMetadata"] = {"threadId": began.branch}
        if last.error is not None:
            entry["exception"] = {"payload": to_json(loggable(last.error.payload))}
        return entry

    def _step_types(self) -> dict[tuple[str, str, str], str]:
        """(routine, step, kind) -> StepType of the steps whose kind alone does not say it."""
        found = {}
        for step in self._definition.walk():
            if step.call is not None:
                found[step.routine, step.name, step.kind] = self._call_type(step.call.name)
            elif isinstance(step.body, Parallel):
                looped = step.body.loop is not None
                found[step.routine, step.name, step.kind] = "STEP_PARALLEL_FOR" if looped else "STEP_PARALLEL_BRANCH"
        return found

    def _call_type(self, name: str) -> str:
        if name in self._definition.workflows:
            return "STEP_SUBWORKFLOW_CALL"
        return "STEP_CONNECTOR_CALL" if name.startswith("googleapis.") else "STEP_STD_LIB_CALL"

    def _emit(
        self, event: str, severity: str, message: str, time: float, step: str, routine: str, more: Mapping[str, Any]
    ) -> None:
        where = {"step": step, "routine": routine} if step else {}
        workflow, _, execution = self._execution.partition("/executions/")
        self._sink(
            {
                "severity": severity,
                "message": message,
                "event": event,
                "time": rfc3339(time),
                "workflow": workflow,
                "execution": execution,
                "labels": self._labels,
                **where,
                **more,
            }
        )


def loggable(value: Any) -> Any:
    """`value` with what JSON cannot hold (bytes, functions) named instead."""
    if isinstance(value, dict):
        return {key: loggable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [loggable(item) for item in value]
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return value if value is None or isinstance(value, str | int | float | bool) else f"<{type(value).__name__}>"
