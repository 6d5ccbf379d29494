"""The calls of run_step in a workflow, and the times that run_step itself keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, repeat

from tools.emulators.workflows.model import Call, Definition, Loop, Parallel, Retry, Step, Try
from tools.emulators.workflows.source import Mark, Node

RUN_STEP = "run_step"
DEFAULT_HTTP_TIMEOUT = 300.0  # of Workflows, for a call that names none


@dataclass(frozen=True)
class StepCall:
    """One place where a function is called; `looped`: inside a loop, so more than once a run."""

    step: str | None
    """None if the name is an expression."""
    call: Call
    routine: str
    at: Mark
    looped: bool


@dataclass(frozen=True)
class Times:
    """Seconds that run_step keeps: of one call, and of the waits between its tries."""

    http_timeout: float
    waits: list[float]
    at: Mark
    timeout_at: Mark

    @property
    def window(self) -> float:
        """From the first failure to the last try, if every try fails at once."""
        return sum(self.waits)

    @property
    def longest(self) -> float:
        """Until run_step gives up, if every try takes its whole time-out."""
        return self.window + (len(self.waits) + 1) * self.http_timeout


def step_calls(definition: Definition) -> Iterator[StepCall]:
    """Every call of run_step, in the order of the source."""
    for workflow in definition.workflows.values():
        if workflow.name != RUN_STEP:
            for step in workflow.steps:
                yield from _below(step, looped=False)


def _below(step: Step, looped: bool) -> Iterator[StepCall]:
    if step.call is not None and step.call.name == RUN_STEP:
        name = step.call.args.get("step")
        known = name.value if name is not None and name.expression is None and isinstance(name.value, str) else None
        yield StepCall(known, step.call, step.routine, step.at, looped)
    loops = isinstance(step.body, Loop) or (isinstance(step.body, Parallel) and step.body.loop is not None)
    for child in step.children():
        yield from _below(child, looped or loops)


def times(definition: Definition) -> Times | None:
    """What run_step keeps; None if it has no HTTP call inside a try with a retry of constant numbers."""
    routine = definition.workflows.get(RUN_STEP)
    for step in (inner for outer in routine.steps for inner in outer.walk()) if routine else ():
        if isinstance(step.body, Try) and step.body.retry is not None:
            for inner in step.walk():
                if inner.call is not None and inner.call.name.startswith("http."):
                    return _times(inner.call, step.body.retry)
    return None


def _times(call: Call, retry: Retry) -> Times | None:
    timeout = call.args.get("timeout")
    backoff = retry.backoff.fields if retry.backoff is not None else {}
    numbers = [
        _number(node, default)
        for node, default in (
            (timeout, DEFAULT_HTTP_TIMEOUT),
            (retry.max_retries, 0.0),
            (backoff.get("initial_delay"), 1.0),
            (backoff.get("max_delay"), 60.0),
            (backoff.get("multiplier"), 1.25),
        )
    ]
    if any(number is None for number in numbers):
        return None
    http, retries, first, top, multiplier = (float(number or 0) for number in numbers)
    waits = accumulate(repeat(first, int(retries)), lambda wait, _: min(wait * multiplier, top))
    return Times(http, [min(wait, top) for wait in waits], retry.at, timeout.at if timeout is not None else call.at)


def _number(node: Node | None, default: float) -> float | None:
    if node is None:
        return default
    return float(node.value) if isinstance(node.value, int | float) and node.expression is None else None
