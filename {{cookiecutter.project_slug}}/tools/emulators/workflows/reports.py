"""How an execution ends, as the API reports it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import Position, WorkflowError
from .values import Value, to_json


@dataclass(frozen=True)
class ErrorReport:
    """`payload` is JSON text of what was raised, `context` says where, `stack` is innermost first."""

    payload: str
    context: str
    stack: list[Position]


@dataclass(frozen=True)
class Outcome:
    """`state` is SUCCEEDED, FAILED or CANCELLED; `result_json` is the text of `result`."""

    state: str
    result: Value = None
    result_json: str = "null"
    error: ErrorReport | None = None
    raised: WorkflowError | None = field(default=None, repr=False)


def context_of(error: WorkflowError) -> str:
    """The message, and one line for each routine it passed."""
    places = [f'in step "{at.step}", routine "{at.routine}", line: {at.line}' for at in error.stack]
    return "\n".join([_headline(error), *places])


def report(error: WorkflowError) -> ErrorReport:
    try:
        payload = to_json(error.payload)
    except WorkflowError:
        payload = to_json(error.summary())
    return ErrorReport(payload, context_of(error), list(error.stack))


def _headline(error: WorkflowError) -> str:
    if error.kind is None or error.kind in ("HttpError", "UnhandledBranchError"):
        return error.summary()
    return f"{error.kind}: {error.summary()}"
