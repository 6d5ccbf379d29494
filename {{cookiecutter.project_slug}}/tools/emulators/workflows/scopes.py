"""Which variable a name means: found at deploy, from the structure of the source alone.

Variables belong to their workflow; those first assigned in a `for`, in `except` or in a branch are local to it. A write
means the variable of an enclosing scope if it was assigned earlier in the source; a read means any there is.
A branch (and an iteration of a parallel loop) has a frame of its own and writes outward only what is `shared`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .expressions import Index, Member, Name, Tree
from .model import Assign, Branch, Call, Handler, Loop, Parallel, Step, Try, Workflow
from .reading import Findings
from .source import Mark


@dataclass(eq=False)
class Space:
    """The slots of one kind of frame."""

    size: int = 0


@dataclass(eq=False)
class Variable:
    name: str
    slot: int
    space: Space
    at: Mark


@dataclass(eq=False)
class Scope:
    """The names of one workflow, loop, handler or branch. `shared` is None but for a branch."""

    what: str
    at: Mark
    space: Space
    outer: Scope | None = None
    shared: set[str] | None = None
    names: dict[str, Variable] = field(default_factory=dict)

    def chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def find(self, name: str) -> Variable | None:
        """The variable a name means here; None if there is none."""
        return next((scope.names[name] for scope in self.chain() if name in scope.names), None)

    def hops_to(self, variable: Variable) -> int:
        """How many frames outward a variable lies."""
        hops, space = 0, self.space
        for scope in self.chain():
            if scope.space is not space:
                hops, space = hops + 1, scope.space
            if variable.space is space:
                return hops
        raise AssertionError(f"{variable.name} is not in scope")

    def declare(self, name: str, at: Mark) -> Variable:
        variable = Variable(name, self.space.size, self.space, at)
        self.space.size += 1
        self.names[name] = variable
        return variable

    def slots(self) -> list[int]:
        """Of its own variables."""
        return [variable.slot for variable in self.names.values()]


Owner = Workflow | Loop | Handler | Branch


@dataclass
class Scopes:
    """The scope of every workflow, loop, handler and branch, and all scopes of a workflow for looking around."""

    of: dict[Owner, Scope] = field(default_factory=dict)
    within: dict[str, list[Scope]] = field(default_factory=dict)


def base_of(target: Tree) -> str:
    """The variable of an assignment's target."""
    while isinstance(target, Member | Index):
        target = target.container
    assert isinstance(target, Name)
    return target.name


def analyse(workflows: dict[str, Workflow], findings: Findings) -> Scopes:
    """The scopes of all workflows, in the order of the source; wrong writes go to `findings`."""
    scopes = Scopes()
    for workflow in workflows.values():
        _Declarer(workflow, scopes, findings).run()
    return scopes


class _Declarer:
    """Walks one workflow in the order of the source and declares what is written."""

    def __init__(self, workflow: Workflow, scopes: Scopes, findings: Findings) -> None:
        self._workflow = workflow
        self._scopes = scopes
        self._findings = findings

    def run(self) -> None:
        workflow = self._workflow
        scope = self._open(workflow, Scope("workflow", workflow.at, Space()))
        for param in workflow.params:
            if param.name not in scope.names:
                scope.declare(param.name, param.at)
        self._block(workflow.steps, scope)

    def _open(self, owner: Owner, scope: Scope) -> Scope:
        self._scopes.of[owner] = scope
        self._scopes.within.setdefault(self._workflow.name, []).append(scope)
        return scope

    def _block(self, steps: list[Step], scope: Scope) -> None:
        for step in steps:
            self._findings.step = step.name
            self._step(step, scope)

    def _step(self, step: Step, scope: Scope) -> None:
        body = step.body
        match body:
            case Assign(entries=entries):
                for entry in entries:
                    whole = isinstance(entry.target, Name)
                    self._write(base_of(entry.target), entry.at, scope, create=whole)
            case Call(result=str(name), result_at=at):
                assert at is not None
                self._write(name, at, scope, create=True)
            case Loop():
                self._loop(body, self._open(body, Scope("for loop", body.at, scope.space, scope)))
            case Parallel():
                self._parallel(body, scope)
            case Try(steps=steps, handler=handler):
                self._block(steps, scope)
                if handler is not None:
                    inner = self._open(handler, Scope("except", handler.at, scope.space, scope))
                    inner.declare(handler.name, handler.at)
                    self._block(handler.steps, inner)
            case _:
                for block in step.blocks():
                    self._block(block, scope)

    def _loop(self, loop: Loop, scope: Scope) -> None:
        for name in (loop.value, loop.index):
            if name:
                scope.declare(name, loop.at)
        self._block(loop.steps, scope)

    def _parallel(self, parallel: Parallel, scope: Scope) -> None:
        for name, at in parallel.shared:
            self._write(name, at, scope, create=True)
        shared = {name for name, _ in parallel.shared}
        for branch in parallel.branches:
            self._block(branch.steps, self._open(branch, Scope("branch", branch.at, Space(), scope, shared)))
        if parallel.loop is not None:
            inner = Scope("parallel for loop", parallel.loop.at, Space(), scope, shared)
            self._loop(parallel.loop, self._open(parallel.loop, inner))

    def _write(self, name: str, at: Mark, scope: Scope, *, create: bool) -> None:
        for inner in scope.chain():
            if name in inner.names:
                return
            if inner.shared is not None and name not in inner.shared and inner.outer and inner.outer.find(name):
                message = f'variable "{name}" lies outside the {inner.what} and is not shared: add it to shared'
                self._findings.add(at, message)
                return
        if create:
            scope.declare(name, at)
