"""The steps of a workflow file, and where they stand in its text."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]
"""Keys and indices from the root of the parsed data to a place in it."""


class SpliceError(Exception):
    """Why an edit cannot be done safely, in one line. Nothing has been changed."""


@dataclass(eq=False)
class StepList:
    """One list of steps. `kind`: ``main``, ``steps``, ``loop`` (a turn for each item) or ``branch`` (of a parallel)."""

    node: yaml.SequenceNode
    path: Path
    kind: str
    holder: Step | None
    steps: list[Step] = field(default_factory=list)

    @property
    def flow(self) -> bool:
        return bool(self.node.flow_style)

    def chain(self) -> Iterator[StepList]:
        """This list and the lists around it, from the inside out."""
        at: StepList | None = self
        while at:
            yield at
            at = at.holder.within if at.holder else None


@dataclass(eq=False)
class Step:
    """One step: a map of one key. `within` is its list, `lists` are the lists of steps in its body."""

    name: str
    node: yaml.MappingNode
    body: yaml.Node
    within: StepList
    index: int
    lists: list[StepList] = field(default_factory=list)

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    def walk(self) -> Iterator[Step]:
        """This step and every step inside it."""
        yield self
        for steps in self.lists:
            for step in steps.steps:
                yield from step.walk()

    def bodies(self) -> Iterator[yaml.MappingNode]:
        """The step's own maps that may hold a call: its body, and bodies in ``try``, ``except`` and ``switch``."""
        pending = [self.body]
        while pending:
            body = pending.pop()
            if not isinstance(body, yaml.MappingNode):
                continue
            yield body
            for key, value in pairs(body):
                if key in ("try", "except"):
                    pending.append(value)
                elif key == "switch" and isinstance(value, yaml.SequenceNode):
                    pending.extend(value.value)

    def calls(self) -> Iterator[tuple[str, yaml.MappingNode]]:
        """The functions that this step itself (not a step inside it) calls through run_step, with the calling body."""
        for body in self.bodies():
            function = child(child(body, "args"), "step")
            if scalar(child(body, "call")) == "run_step" and isinstance(function, yaml.ScalarNode):
                yield function.value, body


class Outline:
    """A workflow file: its text, its main steps, its parsed data. Raises SpliceError if it cannot be edited."""

    def __init__(self, text: str, file: str = "workflows/main.yaml") -> None:
        self.text = text
        self.file = file
        self.root, self.data, self._dashes = self._parse(text)
        self.parameter: str | None = None
        self.main = self._main()

    def _parse(self, text: str) -> tuple[yaml.Node, Any, list[int]]:
        try:
            if any(getattr(event, "anchor", None) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
                raise SpliceError(
                    f"{self.file} uses YAML anchors or aliases, which cannot be edited safely: write the values out"
                )
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            tokens = list(yaml.scan(text, Loader=yaml.SafeLoader))
            data = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f"{self.file}:{mark.line + 1}:{mark.column + 1}" if mark else self.file
            raise SpliceError(f"{line}: not valid YAML: {error.problem or error.context}; correct it first") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise SpliceError(f"{self.file}: not valid YAML: {str(error).splitlines()[0]}; correct it first") from None
        if root is None:
            raise SpliceError(f"{self.file} is empty")
        dashes = [token.start_mark.index for token in tokens if isinstance(token, yaml.BlockEntryToken)]
        return root, data, dashes

    def _main(self) -> StepList:
        main = child(self.root, "main")
        steps = child(main, "steps")
        if not isinstance(main, yaml.MappingNode) or not isinstance(steps, yaml.SequenceNode):
            raise SpliceError(
                f"{self.file} has no `main:` with `params: [run]` and `steps:`, which a call of a step needs"
            )
        parameters = child(main, "params")
        if isinstance(parameters, yaml.SequenceNode) and len(parameters.value) == 1:
            self.parameter = scalar(parameters.value[0])
        return self._read(steps, ("main", "steps"), "main", None)

    def _read(self, node: yaml.SequenceNode, path: Path, kind: str, holder: Step | None) -> StepList:
        steps = StepList(node, path, kind, holder)
        for index, item in enumerate(node.value):
            if not isinstance(item, yaml.MappingNode) or len(item.value) != 1:
                raise self.refusal(item, "a step is a map of one name: correct it first")
            key, body = item.value[0]
            step = Step(str(key.value), item, body, steps, index)
            inside = _lists(body, (*path, index, step.name))
            step.lists = [self._read(inner, at, inner_kind, step) for inner, at, inner_kind in inside]
            steps.steps.append(step)
        return steps

    def walk(self) -> Iterator[Step]:
        """Every step of main, in the order of the text."""
        for step in self.main.steps:
            yield from step.walk()

    def find(self, name: str) -> Step:
        """The step of this name, or else the one (or the loop) that calls the function of this name."""
        named = [step for step in self.walk() if step.name == name]
        if len(named) > 1:
            places = " and ".join(str(step.line) for step in named)
            raise SpliceError(
                f"{self.file} has {len(named)} steps named {name}, on lines {places}: rename one of them first"
            )
        if named:
            return named[0]
        calling = {outermost_loop(step) for step in self.walk() for function, _ in step.calls() if function == name}
        if len(calling) > 1:
            places = " and ".join(sorted(f"{step.name} (line {step.line})" for step in calling))
            raise SpliceError(f"{name} is called in more than one place: say which by the step's own name: {places}")
        if not calling:
            names = ", ".join(step.name for step in self.walk()) or "none"
            raise SpliceError(f"{self.file} has no step named {name} in main; it has: {names}")
        return calling.pop()

    def refusal(self, node: yaml.Node, why: str) -> SpliceError:
        """The error that names the line of a node."""
        return SpliceError(f"{self.file}:{node.start_mark.line + 1}: {why}")

    def dash(self, step: Step) -> int:
        """Where the dash of a step of a block list stands."""
        return self.dash_before(step.node)

    def dash_before(self, node: yaml.Node) -> int:
        """Where the dash of an entry of a block list stands."""
        return self._dashes[bisect.bisect_right(self._dashes, node.start_mark.index) - 1]


def outermost_loop(step: Step) -> Step:
    """The step itself, or the outermost step whose loop it runs in."""
    for around in step.within.chain():
        if around.kind == "loop" and around.holder:
            step = around.holder
    return step


def _lists(body: yaml.Node, path: Path) -> Iterator[tuple[yaml.SequenceNode, Path, str]]:
    """The lists of steps right inside a step's body: node, path, kind."""
    for key, value in pairs(body):
        at = (*path, key)
        if key == "steps" and isinstance(value, yaml.SequenceNode):
            yield value, at, "steps"
        elif key == "for":
            yield from _loop(value, at)
        elif key == "parallel":
            for inner, inner_value in pairs(value):
                if inner == "for":
                    yield from _loop(inner_value, (*at, "for"))
                elif inner == "branches" and isinstance(inner_value, yaml.SequenceNode):
                    yield from _branches(inner_value, (*at, "branches"))
        elif key in ("try", "except"):
            yield from _lists(value, at)
        elif key == "switch" and isinstance(value, yaml.SequenceNode):
            for index, case in enumerate(value.value):
                yield from _lists(case, (*at, index))


def _loop(node: yaml.Node, path: Path) -> Iterator[tuple[yaml.SequenceNode, Path, str]]:
    steps = child(node, "steps")
    if isinstance(steps, yaml.SequenceNode):
        yield steps, (*path, "steps"), "loop"


def _branches(node: yaml.SequenceNode, path: Path) -> Iterator[tuple[yaml.SequenceNode, Path, str]]:
    for index, branch in enumerate(node.value):
        for name, body in pairs(branch):
            steps = child(body, "steps")
            if isinstance(steps, yaml.SequenceNode):
                yield steps, (*path, index, name, "steps"), "branch"


def pairs(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    """Keys and values of a map; none for any other node."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key.value, value


def entries(node: yaml.Node | None) -> list[yaml.Node]:
    """The entries of a list; none for any other node."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    return next((value for name, value in pairs(node) if name == key), None)


def scalar(node: yaml.Node | None) -> str | None:
    return node.value if isinstance(node, yaml.ScalarNode) else None
