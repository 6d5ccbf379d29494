"""Expressions and values to closures, once at deploy.

A closure takes the `Frame` and gives the value. Names are resolved here: a variable to its slot and the number of
branches outward, a function to its code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import library, operators
from .errors import WorkflowError, key_error, type_error
from .expressions import Binary, Call, Index, ListLiteral, Literal, Member, Name, Tree, Unary, dotted
from .runtime import UNSET, Frame, StepCode, ValueCode
from .scopes import Scope, Variable
from .source import Node
from .values import Function, Value, member, type_name


@dataclass(eq=False)
class Routine:
    """A compiled workflow; `code` is filled in after all are known, so that they can call each other."""

    name: str
    params: list[str]
    slots: list[int]  # of the parameters
    defaults: list[Value]  # UNSET where an argument must be given
    size: int  # how many slots a frame has
    code: StepCode | None = field(default=None, repr=False)

    def invoke(self, frame: Frame, args: list[Value]) -> Value:
        """Run it with positional arguments (UNSET for none). Raises TypeError for missing ones, RecursionError."""
        limit = frame.run.limits.call_depth
        if frame.depth >= limit:
            raise WorkflowError.of("RecursionError", f"the call stack is deeper than {limit}")
        inner = Frame(frame.run, self.name, self.size, frame.depth + 1)
        inner.nesting, inner.branch = frame.nesting, frame.branch
        try:
            for slot, default, value in zip(self.slots, self.defaults, args, strict=True):
                given = default if value is UNSET else value
                if given is UNSET:
                    name = self.params[self.slots.index(slot)]
                    raise type_error(f'workflow "{self.name}" needs an argument "{name}"')
                inner.store(slot, given)
            assert self.code is not None
            signal = self.code(inner)
        except WorkflowError as error:
            error.placed = False  # the caller's step is the next on its stack
            raise
        finally:
            inner.close()
        return signal.value if signal is not None else None  # type: ignore[union-attr]

    def has_defaults(self) -> bool:
        return UNSET not in self.defaults

    def function(self) -> Function:
        def call(frame: Frame, args: list[Value]) -> Value:
            return self.invoke(frame, [*args, *[UNSET] * (len(self.params) - len(args))])

        return Function(self.name, call)


class Compiler:
    """Compiles the values of one workflow."""

    def __init__(self, routines: dict[str, Routine]) -> None:
        self._routines = routines

    def value(self, node: Node, scope: Scope) -> ValueCode:
        """The code of a value of the source, with the expressions in it."""
        if node.expression is not None:
            return self.tree(node.expression.tree, scope)
        if node.is_constant():
            return constant(node.value)
        if node.items:
            items = [self.value(item, scope) for item in node.items]
            return lambda frame: [item(frame) for item in items]
        if node.computed:
            return self._computed_map(node, scope)
        fields = [(key, self.value(item, scope)) for key, item in node.fields.items()]
        return lambda frame: {key: item(frame) for key, item in fields}

    def _computed_map(self, node: Node, scope: Scope) -> ValueCode:
        """A map with keys that are expressions."""
        keys = [
            self.tree(node.computed[key].tree, scope) if key in node.computed else constant(key) for key in node.fields
        ]
        items = [self.value(item, scope) for item in node.fields.values()]

        def build(frame: Frame) -> Value:
            result = {}
            for key, item in zip(keys, items, strict=True):
                name = key(frame)
                if type(name) is not str:
                    raise type_error(f"the key of a map must be a string, not {type_name(name)}")
                result[name] = item(frame)
            return result

        return build

    def tree(self, tree: Tree, scope: Scope) -> ValueCode:
        match tree:
            case Literal(value=value):
                return constant(value)
            case ListLiteral(items=items):
                codes = [self.tree(item, scope) for item in items]
                return lambda frame: [code(frame) for code in codes]
            case Name(name=name):
                return self._name(name, scope)
            case Member(container=container, name=name):
                return self._member(tree, container, name, scope)
            case Index(container=container, key=key):
                inner, index = self.tree(container, scope), self.tree(key, scope)
                return lambda frame: member(inner(frame), index(frame))
            case Unary(operator="-", operand=operand):
                code = self.tree(operand, scope)
                return lambda frame: operators.negative(code(frame))
            case Unary(operand=operand):
                code = self.tree(operand, scope)
                return lambda frame: not operators.boolean("not", code(frame))
            case Binary():
                return self._binary(tree, scope)
            case Call(name=name, args=args):
                return self._call(name, [self.tree(arg, scope) for arg in args])

    def _name(self, name: str, scope: Scope) -> ValueCode:
        variable = scope.find(name)
        if variable is None:
            return constant(self._routines[name].function())
        return read(variable, scope.hops_to(variable))

    def _member(self, tree: Tree, container: Tree, name: str, scope: Scope) -> ValueCode:
        path = dotted(tree)
        if path in library.OBJECTS and scope.find(path.split(".")[0]) is None:
            return constant(library.OBJECTS[path])
        inner = self.tree(container, scope)

        def get(frame: Frame) -> Value:
            value = inner(frame)
            if type(value) is dict:
                if name in value:
                    return value[name]
                raise key_error(name)
            raise type_error(f'cannot look up "{name}" in a value of type {type_name(value)}')

        return get

    def _binary(self, tree: Binary, scope: Scope) -> ValueCode:
        left, right = self.tree(tree.left, scope), self.tree(tree.right, scope)
        boolean = operators.boolean
        if tree.operator == "and":
            return lambda frame: boolean("and", left(frame)) and boolean("and", right(frame))
        if tree.operator == "or":
            return lambda frame: boolean("or", left(frame)) or boolean("or", right(frame))
        operator = operators.BINARY[tree.operator]
        return lambda frame: operator(left(frame), right(frame))

    def _call(self, name: str, args: list[ValueCode]) -> ValueCode:
        routine = self._routines.get(name)
        if routine is not None:
            missing = [UNSET] * (len(routine.params) - len(args))
            return lambda frame: routine.invoke(frame, [*(arg(frame) for arg in args), *missing])
        function = library.FUNCTIONS[name]
        code: Callable[..., Value] = function.code
        absent: list[Any] = [library.ABSENT] * (len(function.params) - len(args))
        if not absent and len(args) == 1:
            only = args[0]
            return lambda frame: code(frame, only(frame))
        return lambda frame: code(frame, *[arg(frame) for arg in args], *absent)


def constant(value: Value) -> ValueCode:
    return lambda frame: value


def read(variable: Variable, hops: int) -> ValueCode:
    """The code of reading a variable, `hops` parallel branches outward."""
    slot, name = variable.slot, variable.name

    def unset() -> WorkflowError:
        return WorkflowError.of("KeyError", f'variable "{name}" has no value yet: nothing was assigned to it')

    def local(frame: Frame) -> Value:
        value = frame.values[slot]
        if value is UNSET:
            raise unset()
        return value

    def outer(frame: Frame) -> Value:
        value = outward(frame, hops).values[slot]
        if value is UNSET:
            raise unset()
        return value

    return outer if hops else local


def outward(frame: Frame, hops: int) -> Frame:
    for _ in range(hops):
        assert frame.outer is not None
        frame = frame.outer
    return frame
