"""The call of a new step: its text, and the variables it takes its input from and leaves its result in."""

from __future__ import annotations

import re

import yaml

from tools.splice.edits import Entry
from tools.splice.outline import Outline, SpliceError, Step, StepList, child, pairs, scalar
from tools.splice.positions import Change, apply, block_end, content_end, insertion
from tools.splice.variables import all_names

_PATH = re.compile(r"([a-z][a-z0-9_]*)((?:\.[A-Za-z_]\w*|\[\d+\])*)")
_NULL = "null"


def plain_call(name: str, run: str, value: str, item: str | None, result: str | None) -> Entry:
    """The call of a step through run_step. `value` and `item` are YAML values, such as ``${reserved}``."""
    lines = [f"- {name}:", "    call: run_step", "    args:", f"      step: {name}", f"      run: ${{{run}}}"]
    if item is not None:
        lines.append(f"      item: {item}")
    if value != _NULL:
        lines.append(f"      input: {value}")
    if result is not None:
        lines.append(f"    result: {result}")
    return Entry(name, lines, result)


def template_call(text: str, template: str, name: str, run: str, value: str | None) -> Entry:
    """A call.yaml with the template's name made the step's, and with `value` in place of ``<template>_input``'s own.

    Raises SpliceError if the file is not one step of a block list.
    """
    text = re.sub(rf"\b{template}(?=_|\b)", name, text).replace("${run}", f"${{{run}}}")
    if value is not None:
        text = apply(text, [_value(text, f"{name}_input", value)])
    lines = text.rstrip("\n").split("\n")
    if not lines[0].startswith(f"- {name}:"):
        raise SpliceError(f"call.yaml of the template has to begin with `- {template}:`")
    return Entry(name, lines)


def _value(text: str, key: str, value: str) -> Change:
    pending = [yaml.compose(text, Loader=yaml.SafeLoader)]
    while pending:
        node = pending.pop()
        for name, inner in pairs(node):
            if name == key:
                return Change(inner.start_mark.index, content_end(inner), value)
            pending.append(inner)
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
    raise SpliceError(f"call.yaml of the template sets no {key}: it takes no --input")


def result_name(outline: Outline, name: str) -> str:
    """A variable for the result of a step: its name, unless something of that name is there."""
    taken = all_names(outline) | {key for key, _ in pairs(outline.root)}
    return next(made for made in (name, *(f"{name}_{n}" for n in ("result", *range(2, 99)))) if made not in taken)


def item_beside(anchor: Step) -> str | None:
    """Inside a loop: the item of the anchor's own call, which tells the turns apart. None where there is no loop.

    Raises SpliceError for a loop whose turns have no name.
    """
    if not any(around.kind == "loop" for around in anchor.within.chain()):
        return None
    for _, body in anchor.calls():
        item = scalar(child(child(body, "args"), "item"))
        if item:
            return item
    raise SpliceError(
        f"{anchor.name} runs in a loop and has no `item`, so a call beside it would be one and the same in every turn:"
        " choose a place outside the loop"
    )


def wire_input(outline: Outline, asked: str, place: StepList, before: int) -> tuple[str, Outline]:
    """The expression for ``--input STEP[.path]``, and the outline, in which STEP's call now keeps its result.

    `place` and `before`: the list of the new step, and the text position that it comes behind. Raises SpliceError.
    """
    match = _PATH.fullmatch(asked)
    if not match:
        raise SpliceError(f"--input {asked}: write the name of an earlier step, or STEP.field of its result")
    step = outline.find(match[1])
    _check_visible(outline, step, place, before)
    bodies = [body for _, body in step.calls()]
    if len(bodies) != 1:
        raise outline.refusal(step.node, f"{step.name} is no single call of a step, so it has no result to pass on")
    variable = scalar(child(bodies[0], "result"))
    if variable is None:
        variable = result_name(outline, match[1])
        outline = Outline(_with_result(outline, bodies[0], variable), outline.file)
    return f"${{{variable}{match[2]}}}", outline


def _check_visible(outline: Outline, step: Step, place: StepList, before: int) -> None:
    if step.node.start_mark.index >= before:
        raise outline.refusal(step.node, f"{step.name} comes later than the new step: --input takes an earlier one")
    around = set(place.chain())
    for steps in step.within.chain():
        if steps in around:
            return
        if steps.kind == "loop":
            loop = steps.holder.name if steps.holder else "the loop"
            raise outline.refusal(step.node, f"{step.name} runs once a turn of {loop}: it has no single result")
        if steps.kind == "branch":
            shared = child(child(steps.holder.body if steps.holder else None, "parallel"), "shared")
            variable = next((scalar(child(body, "result")) for _, body in step.calls()), None)
            if not isinstance(shared, yaml.SequenceNode) or variable not in map(scalar, shared.value):
                raise outline.refusal(step.node, f"the result of {step.name} stays in its branch: share it first")
            if steps.holder and any(other.holder is steps.holder for other in place.chain()):
                raise outline.refusal(step.node, f"{step.name} runs side by side with the new step")


def _with_result(outline: Outline, body: yaml.MappingNode, variable: str) -> str:
    text = outline.text
    if body.flow_style:
        end = content_end(body.value[-1][1])
        return apply(text, [Change(end, end, f', "result": "{variable}"')])
    column = body.start_mark.column
    return apply(text, [insertion(text, block_end(text, body, column), [f"result: {variable}"], " " * column)])
