"""Assignments to closures: to a variable, or below it, in this frame or in one that branches share."""

from __future__ import annotations

from collections.abc import Callable

from .compiling import Compiler, outward
from .errors import WorkflowError
from .expressions import Index, Member, Tree
from .model import Assignment
from .runtime import UNSET, Frame, ValueCode
from .scopes import Scope, Variable, base_of
from .values import Value, replaced

Write = Callable[[Frame], None]


def assignment(entry: Assignment, scope: Scope, values: Compiler, routines: set[str]) -> Write:
    """The code of one entry of an assign step.

    To a shared variable, evaluating and writing are one, so that ``total: ${total + 1}`` loses no update. Where the
    value calls a subworkflow, which may wait, only the writing is.
    """
    value = values.value(entry.value, scope)
    variable = scope.find(base_of(entry.target))
    assert variable is not None
    hops = scope.hops_to(variable)
    write = _write(variable, hops, _path(entry.target, scope, values))
    if not hops:
        return lambda frame: write(frame, value(frame))
    expressions = [node.expression for node in entry.value.walk() if node.expression is not None]
    computed = [key for node in entry.value.walk() for key in node.computed.values()]
    calls = {call.name for expression in (*expressions, *computed) for call in expression.calls()}
    if calls & routines:
        return lambda frame: write(frame, value(frame))

    def whole(frame: Frame) -> None:
        with frame.run.shared:
            write(frame, value(frame))

    return whole


def result(name: str, scope: Scope) -> Callable[[Frame, Value], None]:
    """The code that stores what a call gave."""
    variable = scope.find(name)
    assert variable is not None
    return _write(variable, scope.hops_to(variable), [])


def _path(target: Tree, scope: Scope, values: Compiler) -> list[ValueCode]:
    keys: list[ValueCode] = []
    while isinstance(target, Member | Index):
        keys.append(_name(target.name) if isinstance(target, Member) else values.tree(target.key, scope))
        target = target.container
    return keys[::-1]


def _name(name: str) -> ValueCode:
    return lambda frame: name


def _write(variable: Variable, hops: int, path: list[ValueCode]) -> Callable[[Frame, Value], None]:
    slot, name = variable.slot, variable.name

    def store(home: Frame, frame: Frame, value: Value) -> None:
        if not path:
            home.store(slot, value)
            return
        keys = [key(frame) for key in path]
        old = home.values[slot]
        if old is UNSET:
            raise WorkflowError.of("KeyError", f'variable "{name}" has no value yet: assign a map or a list first')
        home.store(slot, replaced(old, keys, value))

    if not hops:
        if not path:
            return lambda frame, value: frame.store(slot, value)
        return lambda frame, value: store(frame, frame, value)

    def shared(frame: Frame, value: Value) -> None:
        with frame.run.shared:
            store(outward(frame, hops), frame, value)

    return shared
