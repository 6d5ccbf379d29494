"""A checked workflow definition, pleasant to walk.

`Definition.walk()` gives every step; a step's `nodes()` the values in it, `call` what it calls, `children()` the steps
below it. Everything has `at`, its place in the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .expressions import Call as CallTree
from .expressions import Expression, Tree
from .source import Mark, Node

if TYPE_CHECKING:
    from .compiling import Routine


@dataclass(eq=False)
class Assignment:
    """One entry of an assign step."""

    text: str
    target: Tree
    at: Mark
    value: Node


@dataclass(eq=False)
class Assign:
    entries: list[Assignment]


@dataclass(eq=False)
class Call:
    """A call step: of the library, a connector or a subworkflow."""

    name: str
    at: Mark
    args: dict[str, Node]
    places: dict[str, Mark]  # of the arguments' names
    result: str | None
    result_at: Mark | None


@dataclass(eq=False)
class Case:
    """One condition of a switch, with what is done then: a body, or only a jump."""

    condition: Node
    at: Mark
    step: Step


@dataclass(eq=False)
class Switch:
    cases: list[Case]


@dataclass(eq=False)
class Loop:
    """``for``: over `items`, or over `range` (a list of first and last)."""

    value: str
    index: str | None
    items: Node | None
    range: Node | None
    at: Mark
    steps: list[Step]


@dataclass(eq=False)
class Branch:
    name: str
    at: Mark
    steps: list[Step]


@dataclass(eq=False)
class Parallel:
    """Either `branches` or `loop`."""

    shared: list[tuple[str, Mark]]
    concurrency_limit: Node | None
    branches: list[Branch]
    loop: Loop | None


@dataclass(eq=False)
class Raise:
    value: Node


@dataclass(eq=False)
class Retry:
    """A whole `policy` (``${http.default_retry}``), or its parts."""

    at: Mark
    policy: Node | None
    predicate: Node | None
    max_retries: Node | None
    backoff: Node | None


@dataclass(eq=False)
class Handler:
    name: str
    at: Mark
    steps: list[Step]


@dataclass(eq=False)
class Try:
    steps: list[Step]
    retry: Retry | None
    handler: Handler | None


@dataclass(eq=False)
class Return:
    value: Node


@dataclass(eq=False)
class Nested:
    steps: list[Step]


@dataclass(eq=False)
class Jump:
    """A step that only has ``next``."""


Body = Assign | Call | Switch | Loop | Parallel | Raise | Try | Return | Nested | Jump

KINDS: dict[type, str] = {
    Assign: "assign",
    Call: "call",
    Switch: "switch",
    Loop: "for",
    Parallel: "parallel",
    Raise: "raise",
    Try: "try",
    Return: "return",
    Nested: "steps",
    Jump: "next",
}


@dataclass(eq=False)
class Step:
    """One step. An inline body (of a switch's condition, of try) is a step too, with the name of the one around it."""

    name: str
    routine: str
    at: Mark
    body: Body
    next: str | None = None
    next_at: Mark | None = None
    inline: bool = False

    @property
    def kind(self) -> str:
        return KINDS[type(self.body)]

    @property
    def call(self) -> Call | None:
        return self.body if isinstance(self.body, Call) else None

    def blocks(self) -> Iterator[list[Step]]:
        """The lists of steps directly below this one."""
        match self.body:
            case Switch(cases=cases):
                yield from ([case.step] for case in cases)
            case Loop(steps=steps) | Nested(steps=steps):
                yield steps
            case Parallel(branches=branches, loop=loop):
                yield from (branch.steps for branch in branches)
                if loop is not None:
                    yield loop.steps
            case Try(steps=steps, handler=handler):
                yield steps
                if handler is not None:
                    yield handler.steps

    def children(self) -> Iterator[Step]:
        for block in self.blocks():
            yield from block

    def walk(self) -> Iterator[Step]:
        """This step and all below it, in the order of the source."""
        yield self
        for child in self.children():
            yield from child.walk()

    def nodes(self) -> Iterator[Node]:
        """The values this step itself holds, without those of the steps below it."""
        match self.body:
            case Assign(entries=entries):
                yield from (entry.value for entry in entries)
            case Call(args=args):
                yield from args.values()
            case Switch(cases=cases):
                yield from (case.condition for case in cases)
            case Loop(items=items, range=bounds):
                yield from (node for node in (items, bounds) if node is not None)
            case Parallel(concurrency_limit=limit, loop=loop):
                inner = (loop.items, loop.range) if loop is not None else ()
                yield from (node for node in (limit, *inner) if node is not None)
            case Raise(value=value) | Return(value=value):
                yield value
            case Try(retry=Retry(policy=policy, predicate=predicate, max_retries=retries, backoff=backoff)):
                yield from (node for node in (policy, predicate, retries, backoff) if node is not None)

    def expressions(self) -> Iterator[tuple[Node, Expression]]:
        """Every expression among `nodes()`, with the scalar it stands in."""
        for node in self.nodes():
            for inner in node.walk():
                if inner.expression is not None:
                    yield inner, inner.expression
                for expression in inner.computed.values():
                    yield inner, expression

    def called(self) -> Iterator[tuple[str, Mark]]:
        """Every function and subworkflow it calls, by call step or in an expression."""
        if self.call is not None:
            yield self.call.name, self.call.at
        for node, expression in self.expressions():
            for tree in expression.walk():
                if isinstance(tree, CallTree):
                    yield tree.name, node.at


@dataclass(eq=False)
class Param:
    """A parameter; `default` is None where an argument must be given."""

    name: str
    at: Mark
    default: Node | None


@dataclass(eq=False)
class Workflow:
    """``main`` or a subworkflow."""

    name: str
    at: Mark
    params: list[Param]
    steps: list[Step]

    def walk(self) -> Iterator[Step]:
        for step in self.steps:
            yield from step.walk()


@dataclass(eq=False)
class Definition:
    """What `definition.load` gives: nothing in it would stop a deployment."""

    file: str
    source: str
    workflows: dict[str, Workflow]
    connectors: Callable[[str], str | None]
    routines: dict[str, Routine] = field(default_factory=dict, repr=False)  # compiled, for the engine

    @property
    def main(self) -> Workflow:
        return self.workflows["main"]

    def walk(self) -> Iterator[Step]:
        for workflow in self.workflows.values():
            yield from workflow.walk()
