"""Which variables the steps of a workflow write and read, as far as an edit must know."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from tools.splice.outline import Outline, Step, StepList, child, entries, pairs, scalar

_STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'')
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


def own(step: Step) -> set[str]:
    """Variables that a step itself makes or changes, not those of the steps inside it."""
    names = set()
    for body in step.bodies():
        result = scalar(child(body, "result"))
        if result:
            names.add(result)
        for entry in entries(child(body, "assign")):
            names.update(_NAME.findall(target)[0] for target, _ in pairs(entry) if _NAME.match(target))
    return names


def written(step: Step, deep: bool = False) -> set[str]:
    """Variables that a step makes or changes; `deep`: also those in loops and branches, where new ones stay local."""
    names = own(step)
    for steps in step.lists:
        if deep or steps.kind == "steps":
            for inner in steps.steps:
                names |= written(inner, deep)
    return names


def known_before(step: Step, outline: Outline) -> set[str]:
    """Variables that a step may count on: the parameter, those of earlier steps, those of the loops around it."""
    names = {outline.parameter} if outline.parameter else set()
    at = step
    while True:
        for earlier in at.within.steps[: at.index]:
            names |= written(earlier)
        holder = at.within.holder
        if holder is None:
            return names
        names |= _loop_variables(holder)
        at = holder


def all_names(outline: Outline) -> set[str]:
    """Every name that stands for a variable anywhere in main."""
    names = {outline.parameter} if outline.parameter else set()
    for step in outline.walk():
        names |= own(step) | _loop_variables(step)
    return names


def uses(node: yaml.Node, skip: tuple[yaml.Node, ...] = ()) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Names in the expressions below a node, with the scalar each stands in; nothing below `skip`."""
    if node in skip:
        return
    if isinstance(node, yaml.ScalarNode):
        if node.value.lstrip().startswith("${"):
            for name in _NAME.findall(_STRING.sub('""', node.value)):
                yield name, node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from uses(item, skip)
    else:
        for key, value in node.value:
            yield from uses(key, skip)
            yield from uses(value, skip)


def jumps(node: yaml.Node, skip: tuple[yaml.Node, ...] = ()) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """The targets of every `next` below a node."""
    if node in skip:
        return
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from jumps(item, skip)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if scalar(key) == "next" and isinstance(value, yaml.ScalarNode):
                yield value.value, value
            yield from jumps(value, skip)


def parallel_depth(steps: StepList) -> int:
    """How many parallel steps a list lies in."""
    return sum(1 for around in steps.chain() if around.holder and child(around.holder.body, "parallel"))


def _loop_variables(step: Step) -> set[str]:
    names = set()
    for loop in (child(step.body, "for"), child(child(step.body, "parallel"), "for")):
        names |= {name for key in ("value", "index") if (name := scalar(child(loop, key)))}
    return names
