"""One execution of a definition, in the calling thread, until its end.

Pure: it reaches nothing but the `World` it is given. While it works it is busy on the clock; while it sleeps it is not.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from .errors import Cancelled, WorkflowError, limit_error
from .limits import RESULT_LIMIT
from .model import Definition
from .reports import ErrorReport, Outcome, report
from .runtime import (
    UNSET,
    Auth,
    Callbacks,
    CallEvent,
    Children,
    Frame,
    LogEntry,
    Request,
    Response,
    Run,
    StepEvent,
    Stop,
    Transport,
    World,
)
from .values import Value, to_json

__all__ = [
    "Auth",
    "CallEvent",
    "Callbacks",
    "Children",
    "ErrorReport",
    "LogEntry",
    "Outcome",
    "Request",
    "Response",
    "StepEvent",
    "Stop",
    "Transport",
    "World",
    "execute",
]


sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))
"""Steps nest in steps of up to 20 workflows, and each level is a few calls of Python, which take no stack of C's."""


def execute(
    definition: Definition,
    argument: Value,
    world: World,
    *,
    env: Mapping[str, str],
    stop: Stop | None = None,
) -> Outcome:
    """Run `main` with `argument` (None for none) to its outcome; `stop` cancels. Raises nothing a workflow can cause.

    `env` is what sys.get_env reads. `stop` is only read: the run has one of its own, which it passes on.
    """
    outer, inner = stop or Stop(), Stop()
    outer.watch(inner.set)
    run = Run(world, env, inner)
    try:
        with world.clock.busy():
            outcome = _outcome(definition, argument, run)
    finally:
        outer.unwatch(inner.set)
    return Outcome("CANCELLED") if outer.is_set() and outcome.state != "SUCCEEDED" else outcome


def _outcome(definition: Definition, argument: Value, run: Run) -> Outcome:
    routine = definition.routines["main"]
    try:
        given = UNSET if argument is None and routine.has_defaults() else argument
        value = routine.invoke(Frame(run, "", 0, 0), [given] * len(routine.params))
        text = to_json(value)
        if len(text.encode(errors="surrogatepass")) > RESULT_LIMIT:
            raise limit_error(f"the result is larger than {RESULT_LIMIT} bytes")
        return Outcome("SUCCEEDED", value, text)
    except Cancelled:
        if run.fatal is None:
            return Outcome("CANCELLED")
        return _failed(run.fatal)
    except WorkflowError as error:
        return _failed(run.fatal or error)


def _failed(error: WorkflowError) -> Outcome:
    return Outcome("FAILED", error=report(error), raised=error)
