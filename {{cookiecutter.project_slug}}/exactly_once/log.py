"""Every decision is one line of JSON on stdout, in Cloud Logging's format: the receipt of a run is the sum of its
lines.

A line never holds a payload, a result, or the text of an exception that the runtime does not know: those may carry
secrets. What an author writes into `Retry` and `Permanent` is passed on.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

EVENTS: dict[str, tuple[str, str]] = {
    "run.claimed": ("INFO", "this delivery is the first of its run and starts it"),
    "run.taken_over": ("WARNING", "an earlier delivery released the run, or its lease ran out; this one goes on"),
    "run.started": ("NOTICE", "the execution was started and recorded"),
    "run.adopted": ("NOTICE", "an execution of an earlier delivery was found and recorded"),
    "run.duplicate": ("INFO", "the run was started before; nothing was done"),
    "run.busy": ("INFO", "another delivery is starting the run; nothing was done"),
    "run.released": ("WARNING", "the start failed; the next delivery tries again"),
    "run.fenced": ("WARNING", "another delivery took the run over while this one was at work"),
    "run.refused": ("WARNING", "the request says no run: its headers are missing or wrong"),
    "run.queued": ("NOTICE", "an earlier run is at work; this one starts when it has ended"),
    "run.skipped": ("WARNING", "an earlier run is at work; this one is not started"),
    "run.error": ("ERROR", "Firestore or Workflows gave no usable answer, or the proxy is set up wrongly"),
    "step.claimed": ("INFO", "this attempt is the first of its step"),
    "step.taken_over": ("WARNING", "an earlier attempt released the step, or its lease ran out; this one goes on"),
    "step.running": ("INFO", "the body begins"),
    "step.completed": ("NOTICE", "the result is recorded"),
    "step.replayed": ("INFO", "the step was completed before; its recorded result was answered"),
    "step.duplicate": ("INFO", "another attempt is at work; nothing was done"),
    "step.released": ("WARNING", "the attempt ended without an effect that counts; the next one runs the body again"),
    "step.failed": ("ERROR", "the step is failed until an operator resolves it"),
    "step.held": ("ERROR", "the outcome is unknown: nothing runs until an operator resolves it"),
    "step.fenced": ("WARNING", "another attempt took the step over; this one changed nothing"),
    "step.refused": ("WARNING", "the request was not carried out: malformed, for another step, or with another input"),
    "step.error": ("ERROR", "the body raised, or Firestore gave no usable answer"),
    "step.verified": ("NOTICE", "the verify hook looked at the outside system"),
    "step.extended": ("DEBUG", "the lease was extended"),
    "operator.resolved": ("NOTICE", "an operator decided a step's outcome"),
    "operator.accepted": ("NOTICE", "an operator let a recorded result stand for another input"),
    "operator.resumed": ("NOTICE", "an operator started a new execution of a run"),
    "operator.redone": ("NOTICE", "an operator has a completed step done again"),
    "operator.cancelled": ("NOTICE", "an operator cancelled the execution of a run"),
}
"""Event -> severity, and what it means. Alerts and reports go by these names."""

Write = Callable[[str], None]

_LINE = json.JSONEncoder(default=str)
"""In ASCII: whatever text a caller names an item by, the line can be written."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C Trace Context
_CLOUD_TRACE = re.compile(r"([0-9a-fA-F]{32})(/.*)?")


def to_stdout(line: str) -> None:
    """One write a line: lines of threads do not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Log:
    """Writes events with the fields that are common to what it is about."""

    def __init__(self, write: Write = to_stdout, **common: Any) -> None:
        self._write = write
        self._common = {name: value for name, value in common.items() if value is not None}

    def about(self, **common: Any) -> Log:
        """A log with more common fields: pipeline, run_id, step, item, attempt_id, attempt, trace."""
        return Log(self._write, **{**self._common, **common})

    def __call__(self, event: str, reason: str | None = None, **fields: Any) -> None:
        severity, meaning = EVENTS[event]
        about = {**self._common, **{name: value for name, value in fields.items() if value is not None}}
        trace = about.pop("trace", None)
        labels = {
            "run": str(about.get("run_id", ""))[:63],
            "step": about.get("step"),
            "pipeline": about.get("pipeline"),
        }
        line = {"severity": severity, "message": f"{event}: {reason or meaning}", "event": event, **about}
        if reason:
            line["reason"] = reason
        if trace:
            line["logging.googleapis.com/trace"] = trace
        line["logging.googleapis.com/labels"] = {name: text for name, text in labels.items() if text}
        self._write(_LINE.encode(line))


def traceback_text(error: BaseException, *, whole: bool) -> str:
    """The lines it came through. `whole`: with its text too, which may hold what no log in the cloud should."""
    if whole:
        return "".join(traceback.format_exception(error))
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"Traceback (most recent call last):\n{frames}{type(error).__name__}"


def trace_of(headers: Mapping[str, str], project: str) -> str | None:
    """The trace's resource name from `traceparent` or `X-Cloud-Trace-Context`, whichever case they are in."""
    found = {name.lower(): value for name, value in headers.items()}
    match = _TRACEPARENT.fullmatch(found.get("traceparent", "")) or _CLOUD_TRACE.fullmatch(
        found.get("x-cloud-trace-context", "")
    )
    return f"projects/{project}/traces/{match[1].lower()}" if match and project else None
