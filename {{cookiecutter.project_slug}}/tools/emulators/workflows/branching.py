"""What the branches of one parallel step do together: their frames, their errors, and the limits on them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .errors import Cancelled, WorkflowError, type_error, value_error
from .parallel import side_by_side
from .reports import context_of
from .runtime import Frame, StepCode, ValueCode
from .values import Value, to_json, type_name

Body = Callable[[int, Frame], Frame]
"""Makes the frame of a branch out of the frame around."""


def run_branches(frame: Frame, names: list[str], limit: int, open_frame: Body, code: Callable[[int], StepCode]) -> None:
    """Run every branch to its end, then raise what they did not handle as one UnhandledBranchError."""
    if frame.nesting >= frame.run.limits.parallel_depth:
        message = f"parallel steps are nested deeper than {frame.run.limits.parallel_depth}"
        raise WorkflowError.of("ParallelNestingError", message)
    failures: dict[int, WorkflowError] = {}
    lock = threading.Lock()

    def work(index: int, outer: Frame) -> None:
        try:
            branch = open_frame(index, outer)
            try:
                code(index)(branch)
            finally:
                branch.close()
        except WorkflowError as error:
            if not error.catchable:
                frame.run.end(error)
                raise Cancelled from error
            with lock:
                failures[index] = error

    side_by_side(frame, len(names), limit, work)
    if failures:
        raise _unhandled(frame, names, failures)


def branch_frame(outer: Frame, name: str, size: int) -> Frame:
    """A frame for one branch, with `size` variables of its own."""
    frame = Frame(outer.run, outer.routine, size, outer.depth, outer)
    frame.nesting = outer.nesting + 1
    frame.branch = f"{outer.branch}/{name}" if outer.branch else name
    frame.step = outer.step
    return frame


def concurrency(limit: ValueCode | None, frame: Frame) -> int:
    """How many branches of a step may run at once. Raises TypeError or ValueError for a wrong concurrency_limit."""
    most = frame.run.limits.concurrency
    if limit is None:
        return most
    value = limit(frame)
    if type(value) is not int:
        raise type_error(f"concurrency_limit must be an integer, not {type_name(value)}")
    if value < 1:
        raise value_error(f"concurrency_limit must be positive, not {value}")
    return min(value, most)


def _unhandled(frame: Frame, names: list[str], failures: dict[int, WorkflowError]) -> WorkflowError:
    kept: list[Value] = []
    truncated = False
    for index in sorted(failures):
        if next(frame.run.branch_errors) > frame.run.limits.branch_errors:
            truncated = True
            break
        error = failures[index]
        kept.append({"id": names[index], "error": {"context": context_of(error), "payload": _payload(error)}})
    count = len(failures)
    branches = "a branch or iteration" if count == 1 else f"{count} branches or iterations"
    message = f"UnhandledBranchError: {branches} met an error that was not handled"
    return WorkflowError.of("UnhandledBranchError", message, branches=kept, truncated=truncated)


def _payload(error: WorkflowError) -> Value:
    try:
        return to_json(error.payload)
    except WorkflowError:
        return to_json(error.summary())
