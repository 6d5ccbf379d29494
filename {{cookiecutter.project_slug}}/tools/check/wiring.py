"""The workflow: every function is called once, only through run_step, and run_step tries again what may pass."""

from __future__ import annotations

import json
from collections.abc import Iterator

import yaml

from tools.check.calls import RUN_STEP, StepCall, step_calls
from tools.check.findings import Finding, Project
from tools.emulators.clock import SystemClock
from tools.emulators.workflows.definition import load
from tools.emulators.workflows.engine import execute
from tools.emulators.workflows.expressions import Name
from tools.emulators.workflows.model import Definition, Retry, Step, Try
from tools.emulators.workflows.runtime import Request, Response, World

READING = ("http.get",)
PASSING = (409, 429, 500, 502, 503, 504)
"""Answers of a step after which another try may succeed: busy or fenced, overloaded, any fault of a server."""
FINAL = (400, 401, 403, 404, 422)
BROKEN = ("ConnectionError", "ConnectionFailedError", "TimeoutError")


def wiring(project: Project) -> Iterator[Finding]:
    """What is wrong with the calls in the workflow, and with its retry."""
    definition = project.workflow
    if definition is None:
        return
    calls = list(step_calls(definition))
    for call in calls:
        yield from _call(project, definition, call)
    for name in project.settings.steps:
        places = [call for call in calls if call.step == name]
        if not places and all(call.step is not None for call in calls):
            yield Finding(
                "error",
                f"functions/{name}/main.py",
                1,
                f"{definition.file} never calls {name}: it is deployed and does nothing",
                f"Call run_step with step: {name}, or remove functions/{name}",
            )
        for again in places[1:]:
            yield Finding(
                "error",
                definition.file,
                again.at.line,
                f"{name} is called a second time (first in line {places[0].at.line}): in the same run that call "
                f"replays the first result "
                "and does nothing",
                "Make it a step of its own, or one call with different items",
            )
    for workflow in definition.workflows.values():
        if workflow.name != RUN_STEP:
            for step in (inner for outer in workflow.steps for inner in outer.walk()):
                yield from _effect(definition, step)
    yield from _retry(definition)


def _call(project: Project, definition: Definition, call: StepCall) -> Iterator[Finding]:
    line = call.at.line
    if call.step is None:
        yield Finding(
            "warning",
            definition.file,
            line,
            "the step's name is computed, so nobody can see here which functions are called",
            "Write the name",
        )
    elif call.step not in project.settings.steps:
        yield Finding(
            "error",
            definition.file,
            line,
            f"there is no functions/{call.step}/main.py: the run fails at this step",
            f"Add it (./pipeline add-step {call.step}), or call one of: "
            f"{', '.join(project.settings.steps) or 'none yet'}",
        )
    run = call.call.args.get("run")
    params = {param.name for param in definition.workflows[call.routine].params}
    passed = (
        run is not None
        and run.expression is not None
        and isinstance(run.expression.tree, Name)
        and run.expression.tree.name in params
    )
    if not passed:
        yield Finding(
            "error",
            definition.file,
            line,
            "run_step is not given the run that this workflow was started with, so the step cannot tell a repeat "
            "from new work: effects double",
            "Pass run: ${run}, where run is a parameter",
        )
    if call.looped and "item" not in call.call.args and not _takes_items(project, call):
        yield Finding(
            "error",
            definition.file,
            line,
            f"{call.step or 'the step'} is called in a loop without an item: every turn has the same key, and all "
            f"but the first do nothing",
            "Pass item: with a text that names the element",
        )


def _takes_items(project: Project, call: StepCall) -> bool:
    """Whether the step gets a list of items, each with a record and a key of its own (`chunk_step`)."""
    step = project.settings.steps.get(call.step or "")
    return step is not None and "@chunk_step" in (step.folder / "main.py").read_text(encoding="utf-8")


def _effect(definition: Definition, step: Step) -> Iterator[Finding]:
    """A call that changes something outside run_step."""
    if step.call is None or not step.call.name.startswith(("http.", "googleapis.")) or step.call.name in READING:
        return
    method = step.call.args.get("method")
    reads = step.call.name.rpartition(".")[2] in ("get", "list", "batchGet", "runQuery") or (
        step.call.name == "http.request" and method is not None and method.value in ("GET", "HEAD")
    )
    if not reads:
        yield Finding(
            "error",
            definition.file,
            step.at.line,
            f"{step.call.name} is called outside run_step: nothing remembers that it was done, so it is done again "
            f"when the run is resumed or "
            "started twice",
            "Move it into a function and call that through run_step",
        )


def _retry(definition: Definition) -> Iterator[Finding]:
    routine = definition.workflows.get(RUN_STEP)
    for step in (inner for outer in routine.steps for inner in outer.walk()) if routine else ():
        if isinstance(step.body, Try) and step.body.retry is not None:
            yield from _predicate(definition, step.body.retry)


def _predicate(definition: Definition, retry: Retry) -> Iterator[Finding]:
    """Ask the predicate itself, in the engine, what it makes of each error."""
    node = retry.policy or retry.predicate
    if node is None or node.expression is None:
        return
    missed = [
        name for name, error in _errors(PASSING, BROKEN) if not judged(definition, node.expression.text, retry, error)
    ]
    if missed:
        yield Finding(
            "error",
            definition.file,
            node.at.line,
            f"the retry of run_step gives up on {', '.join(missed)}: a step that is busy, crashed or cut off fails "
            f"the whole run",
            "Let its predicate answer true for 409, 429, 5xx, ConnectionError, ConnectionFailedError and TimeoutError",
        )
    useless = [name for name, error in _errors(FINAL, ()) if judged(definition, node.expression.text, retry, error)]
    if useless:
        yield Finding(
            "warning",
            definition.file,
            node.at.line,
            f"the retry of run_step repeats on {', '.join(useless)}, which no repeat can change: a failed step is "
            f"told late",
            "Let its predicate answer false there",
        )


def _errors(codes: tuple[int, ...], tags: tuple[str, ...]) -> Iterator[tuple[str, dict[str, object]]]:
    for code in codes:
        yield str(code), {"tags": ["HttpError"], "code": code, "message": "", "headers": {}, "body": {}}
    for tag in tags:
        yield tag, {"tags": [tag], "message": ""}


class _Nowhere:
    """A transport for a predicate, which has no business calling anything."""

    def request(self, request: Request) -> Response:
        raise AssertionError(f"a predicate called {request.url}")


def judged(definition: Definition, predicate: str, retry: Retry, error: dict[str, object]) -> bool:
    """Whether the predicate named in an expression tries again after `error`; of a policy, its own predicate."""
    name = predicate.strip().removeprefix("${").removesuffix("}").strip()
    if retry.policy is not None:
        name = {"http.default_retry": "http.default_retry_predicate"}.get(name, name + "_predicate")
    source = yaml.safe_load(definition.source)
    callee = definition.workflows.get(name)
    argument = callee.params[0].name if callee is not None and callee.params else "error"
    ask: dict[str, dict[str, object]] = {"ask": {"call": name, "args": {argument: "${error}"}, "result": "answer"}}
    if callee is None:
        ask = {"ask": {"assign": [{"answer": f"${{{name}(error)}}"}]}}
    source["main"] = {"params": ["error"], "steps": [ask, {"give": {"return": "${answer}"}}]}
    asked = load(json.dumps(source), connectors=lambda name: None)
    return execute(asked, error, World(SystemClock(), _Nowhere()), env={}).result is True
