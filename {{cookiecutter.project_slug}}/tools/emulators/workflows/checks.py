"""The rules of a deployment that need more than the form: names, calls, jumps."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import library
from .expressions import Binary, Expression, Index, ListLiteral, Member, Name, Tree, Unary, dotted
from .expressions import Call as CallTree
from .model import Assign, Call, Handler, Loop, Parallel, Step, Switch, Try, Workflow
from .reading import RESERVED, Findings
from .scopes import Scope, Scopes, base_of
from .source import Mark

CONNECTORS = ("googleapis.", "gke.")


@dataclass(frozen=True)
class Place:
    """Where a block stands: its scope, the steps `next` may name, and whether a loop is around it."""

    scope: Scope
    targets: frozenset[str]
    can_break: bool = False
    can_continue: bool = False
    in_branch: bool = False


class Checker:
    def __init__(
        self,
        workflows: dict[str, Workflow],
        scopes: Scopes,
        findings: Findings,
        connectors: Callable[[str], str | None],
    ) -> None:
        self._workflows = workflows
        self._scopes = scopes
        self._findings = findings
        self._connectors = connectors

    def run(self) -> None:
        for workflow in self._workflows.values():
            self._block(workflow.steps, Place(self._scopes.of[workflow], frozenset()))

    def _block(self, steps: list[Step], place: Place) -> None:
        seen: set[str] = set()
        for step in steps:
            self._findings.step = step.name
            if not step.inline and (step.name in seen or step.name in place.targets):
                self._findings.add(step.at, f'duplicate step name "{step.name}": rename one of the two')
            seen.add(step.name)
        names = frozenset(step.name for step in steps if not step.inline)
        inner = Place(place.scope, place.targets | names, place.can_break, place.can_continue, place.in_branch)
        for step in steps:
            self._findings.step = step.name
            self._step(step, inner)

    def _step(self, step: Step, place: Place) -> None:
        scope = place.scope
        for node, expression in step.expressions():
            self._expression(expression, node.at, scope)
        self._next(step, place)
        body = step.body
        match body:
            case Assign(entries=entries):
                for entry in entries:
                    self._target(entry.target, entry.at, scope)
            case Call():
                self._call(body)
            case Switch(cases=cases):
                for case in cases:
                    self._block([case.step], place)
            case Loop():
                self._loop(body, place)
            case Parallel():
                self._parallel(body, place)
            case Try(steps=steps, handler=handler):
                self._retry(body)
                self._block(steps, place)
                if handler is not None:
                    self._handler(handler, place)
            case _:
                for block in step.blocks():
                    self._block(block, place)
        self._findings.step = step.name

    def _loop(self, loop: Loop, place: Place) -> None:
        inner = Place(self._scopes.of[loop], place.targets, True, True, place.in_branch)
        self._block(loop.steps, inner)

    def _handler(self, handler: Handler, place: Place) -> None:
        scope = self._scopes.of[handler]
        self._block(handler.steps, Place(scope, place.targets, place.can_break, place.can_continue, place.in_branch))

    def _parallel(self, parallel: Parallel, place: Place) -> None:
        for branch in parallel.branches:
            self._block(branch.steps, Place(self._scopes.of[branch], frozenset(), in_branch=True))
        if parallel.loop is not None:
            scope = self._scopes.of[parallel.loop]
            self._block(parallel.loop.steps, Place(scope, frozenset(), can_continue=True, in_branch=True))

    def _next(self, step: Step, place: Place) -> None:
        target, at = step.next, step.next_at
        if step.kind == "return" and place.in_branch:
            self._findings.add(
                step.at, "return inside a parallel step is not emulated: assign to a shared variable instead"
            )
        if target is None or at is None:
            return
        if target == "end" and place.in_branch:
            self._findings.add(at, "next: end inside a parallel step is not emulated: let the branch run to its end")
        elif target == "break" and not place.can_break:
            self._findings.add(
                at, "break outside of a for loop (or directly in a parallel one): there is nothing to leave"
            )
        elif target == "continue" and not place.can_continue:
            self._findings.add(at, "continue outside of a for loop: there is nothing to continue")
        elif target not in RESERVED and target not in place.targets:
            message = f'next: "{target}" is no step that can be jumped to from here{_similar(target, place.targets)}'
            self._findings.add(at, f"{message}; a step of the same list, or of one around it within the branch, can be")

    def _retry(self, body: Try) -> None:
        predicate = body.retry.predicate if body.retry is not None else None
        if predicate is None:
            return
        tree = predicate.expression.tree if predicate.expression is not None else None
        if tree is None:
            self._findings.add(predicate.at, "predicate is the name of a subworkflow in ${...}, without arguments")
        elif isinstance(tree, Name) and tree.name in self._workflows:
            required = [param for param in self._workflows[tree.name].params if param.default is None]
            if len(self._workflows[tree.name].params) < 1 or len(required) > 1:
                self._findings.add(predicate.at, f'predicate "{tree.name}" must take one parameter: the error')

    def _target(self, target: Tree, at: Mark, scope: Scope) -> None:
        name = base_of(target)
        if not isinstance(target, Name) and scope.find(name) is None:
            self._unknown(name, at, scope)
        while isinstance(target, Member | Index):
            if isinstance(target, Index):
                self._expression(Expression("", target.key), at, scope)
            target = target.container

    def _expression(self, expression: Expression, at: Mark, scope: Scope) -> None:
        self._tree(expression.tree, at, scope)

    def _tree(self, tree: Tree, at: Mark, scope: Scope) -> None:
        match tree:
            case Member(container=container):
                path = dotted(tree)
                if path in library.OBJECTS and scope.find(path.split(".")[0]) is None:
                    return
                self._tree(container, at, scope)
            case Index(container=container, key=key):
                self._tree(container, at, scope)
                self._tree(key, at, scope)
            case Name(name=name):
                if scope.find(name) is None and name not in self._workflows:
                    self._unknown(name, at, scope)
            case CallTree(name=name, args=args):
                self._call_in_expression(name, len(args), at)
                for arg in args:
                    self._tree(arg, at, scope)
            case _:
                for child in _children(tree):
                    self._tree(child, at, scope)

    def _unknown(self, name: str, at: Mark, scope: Scope) -> None:
        within = next((scopes for scopes in self._scopes.within.values() if scope in scopes), [])
        elsewhere = next((other for other in within if name in other.names and other is not within[0]), None)
        if elsewhere is not None:
            place = f"the {elsewhere.what} at line {elsewhere.at.line}"
            message = f'variable "{name}" is local to {place}: assign it before that step to use it outside'
        elif name in library.MODULES:
            message = f'"{name}" is a module of the library: name one of its functions, such as {_example(name)}'
        else:
            known = [known for inner in scope.chain() for known in inner.names]
            similar = _similar(name, [*known, *self._workflows])
            message = f'symbol "{name}" is neither a variable nor a subworkflow{similar}: assign it before it is used'
        self._findings.add(at, message)

    def _call_in_expression(self, name: str, count: int, at: Mark) -> None:
        if name in self._workflows:
            params = self._workflows[name].params
            required = sum(param.default is None for param in params)
            self._count(name, count, required, len(params), at)
            return
        if name.startswith(CONNECTORS):
            self._findings.add(at, f"{name} blocks, so it cannot be called in an expression: use a call step")
            return
        function = library.FUNCTIONS.get(name)
        if function is None:
            self._unknown_function(name, at)
        elif function.blocking:
            self._findings.add(at, f"{name} blocks, so it cannot be called in an expression: use a call step")
        else:
            required = sum(param.required for param in function.params)
            self._count(name, count, required, len(function.params), at)

    def _count(self, name: str, count: int, required: int, most: int, at: Mark) -> None:
        if not required <= count <= most:
            takes = str(most) if required == most else f"{required} to {most}"
            self._findings.add(at, f"{name} takes {takes} arguments, not {count}")

    def _call(self, call: Call) -> None:
        name = call.name
        if not name:
            return
        if name in self._workflows:
            params = self._workflows[name].params
            required = {param.name for param in params if param.default is None}
            self._arguments(call, required, [param.name for param in params])
            return
        if name.startswith(CONNECTORS):
            refusal = self._connectors(name)
            if refusal is not None:
                self._findings.add(call.at, refusal)
            return
        function = library.FUNCTIONS.get(name)
        if function is None:
            self._unknown_function(name, call.at)
            return
        required = {param.name for param in function.params if param.required}
        self._arguments(call, required, [param.name for param in function.params])
        for argument, why in function.refused.items():
            if argument in call.args:
                self._findings.add(call.places[argument], f'argument "{argument}" of {name}: {why}')

    def _arguments(self, call: Call, required: set[str], names: list[str]) -> None:
        for argument in call.args:
            if argument not in names:
                takes = f"it takes {', '.join(names)}" if names else "it takes none"
                self._findings.add(call.places[argument], f'{call.name} has no argument "{argument}": {takes}')
        for argument in (name for name in names if name in required and name not in call.args):
            self._findings.add(call.at, f'{call.name} needs the argument "{argument}": add it to args')

    def _unknown_function(self, name: str, at: Mark) -> None:
        known = [*library.FUNCTIONS, *self._workflows]
        similar = _similar(name, known)
        self._findings.add(at, f'"{name}" is neither a function of the library nor a subworkflow{similar}')


def _children(tree: Tree) -> Iterable[Tree]:
    match tree:
        case Unary(operand=operand):
            return [operand]
        case Binary(left=left, right=right):
            return [left, right]
        case ListLiteral(items=items):
            return items
        case _:
            return []


def _example(module: str) -> str:
    return next(name for name in (*library.FUNCTIONS, *library.OBJECTS) if name.startswith(f"{module}."))


def _similar(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
    return f' (did you mean "{close[0]}"?)' if close else ""


def refuse(name: str) -> str | None:
    """The default for connectors: none has a stand-in."""
    return f"connector {name} has no stand-in here: give its service a local URL in the settings, or call it by http"
