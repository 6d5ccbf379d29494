"""Putting steps into a workflow file and taking them out."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tools.splice.outline import Outline, Path, SpliceError, Step, StepList, child
from tools.splice.positions import Change, apply, block_end, insertion, line_start, newline
from tools.splice.variables import jumps, known_before, parallel_depth, written

MAX_BRANCHES = 10
"""Branches of one parallel step (a limit of Workflows)."""
MAX_DEPTH = 2
"""Parallel steps inside one another (a limit of Workflows)."""
_TOO_DEEP = f"Workflows runs at most {MAX_DEPTH} inside one another"


@dataclass(frozen=True)
class Entry:
    """A step to be put in: its lines as an entry of a block list (``- name:`` first), its result's variable."""

    name: str
    lines: list[str]
    result: str | None = None

    @property
    def data(self) -> Any:
        return yaml.safe_load("\n".join(self.lines))[0]


def add_after(outline: Outline, anchor: Step, entry: Entry) -> str:
    """The text with `entry` behind `anchor`. Raises SpliceError."""
    for key, why in (("next", "jumps elsewhere"), ("return", "ends the workflow"), ("raise", "raises an error")):
        if child(anchor.body, key):
            raise outline.refusal(anchor.node, f"a step after {anchor.name} would never run: it {why} (`{key}`)")
    _check_depth(entry, anchor.within)
    change = _entry_after(outline, anchor.within.node, anchor.index, entry.lines)
    return finish(
        outline, [change], lambda data: at_path(data, anchor.within.path).insert(anchor.index + 1, entry.data)
    )


def add_at_end(outline: Outline, entry: Entry) -> str:
    """The text with `entry` as the last step of main, before a closing `return`. Raises SpliceError."""
    steps = outline.main.steps
    if not steps:
        raise SpliceError(f"{outline.file}: main has no step to add to")
    last = steps[-1]
    if not child(last.body, "return"):
        return add_after(outline, last, entry)
    if last.index:
        return add_after(outline, steps[-2], entry)
    change = _lines_before(outline, last, entry.lines)
    return finish(outline, [change], lambda data: at_path(data, outline.main.path).insert(0, entry.data))


def add_parallel(outline: Outline, anchor: Step, entry: Entry) -> str:
    """The text with `entry` side by side with `anchor`: a branch more in its parallel step, or one around both."""
    if anchor.within.kind == "branch":
        return _add_branch(outline, anchor, entry)
    return _wrap(outline, anchor, entry)


def _add_branch(outline: Outline, anchor: Step, entry: Entry) -> str:
    holder = anchor.within.holder
    assert holder is not None
    parallel = child(holder.body, "parallel")
    branches = child(parallel, "branches")
    assert isinstance(branches, yaml.SequenceNode)
    if len(branches.value) >= MAX_BRANCHES:
        raise outline.refusal(holder.node, f"{holder.name} has {MAX_BRANCHES} branches, the most that Workflows runs")
    _check_depth(entry, anchor.within)
    *branches_path, index, _, _ = anchor.within.path
    lines = _branch(entry.name, entry.lines)
    changes = [_entry_after(outline, branches, int(index), lines)]
    new = yaml.safe_load("\n".join(lines))[0]
    start = _lines_before(outline, holder, init_lines(entry.name, [entry.result])) if entry.result else None
    if start:
        changes += [start, _share(outline, parallel, str(entry.result))]

    def change(data: Any) -> None:
        at_path(data, tuple(branches_path)).insert(int(index) + 1, new)
        if start:
            owner = at_path(data, (*holder.within.path, holder.index, holder.name, "parallel"))
            owner["shared"] = [*(owner.get("shared") or []), entry.result]
            at_path(data, holder.within.path).insert(
                holder.index, yaml.safe_load("\n".join(init_lines(entry.name, [entry.result])))[0]
            )

    return finish(outline, changes, change)


def _wrap(outline: Outline, anchor: Step, entry: Entry) -> str:
    _check_movable(outline, anchor)
    if parallel_depth(anchor.within) + 1 + max(_depth(anchor), _depth_of(entry.data)) > MAX_DEPTH:
        raise outline.refusal(anchor.node, f"{anchor.name} cannot run in one more parallel step: {_TOO_DEEP}")
    before = known_before(anchor, outline)
    shared = sorted(written(anchor) | (written(anchor, deep=True) & before))
    results = [*shared, *([entry.result] if entry.result else [])]
    group = f"{anchor.name}_and_{entry.name}"
    fresh = [name for name in results if name not in before]
    start = init_lines(group, fresh) if fresh else []
    head = [
        f"- {group}:",
        "    parallel:",
        *([f"      shared: [{', '.join(results)}]"] if results else []),
        "      branches:",
    ]
    old_branch = [f"        - {anchor.name}_branch:", "            steps:"]
    new_branch = ["        " + line for line in _branch(entry.name, entry.lines)]
    placeholder = "- null"
    template = yaml.safe_load("\n".join([*start, *head, *old_branch, " " * 14 + placeholder, *new_branch]))
    if anchor.within.flow:
        changes = _wrap_flow(anchor, template)
    else:
        changes = [_wrap_block(outline, anchor, [*start, *head, *old_branch], new_branch)]

    def change(data: Any) -> None:
        steps = at_path(data, anchor.within.path)
        made = copy.deepcopy(template)
        made[-1][group]["parallel"]["branches"][0][f"{anchor.name}_branch"]["steps"] = [steps[anchor.index]]
        steps[anchor.index : anchor.index + 1] = made

    return finish(outline, changes, change)


def _wrap_block(outline: Outline, anchor: Step, head: list[str], tail: list[str]) -> Change:
    text, dash = outline.text, outline.dash(anchor)
    start = line_start(text, dash)
    column = dash - start
    check_own_line(outline, start, dash, anchor.name)
    end = block_end(text, anchor.node, column)
    broken = newline(text, start)
    moved = "".join(
        " " * 14 + line if line.strip("\r\n") else line for line in text[start:end].splitlines(keepends=True)
    )
    unfinished = not text[start:end].endswith("\n")
    indent = " " * column
    before = "".join(indent + line + broken for line in head)
    after = broken.join(indent + line for line in tail)
    return Change(start, end, before + moved + (broken + after if unfinished else after + broken))


def _wrap_flow(anchor: Step, template: list[Any]) -> list[Change]:
    made = json.dumps(template, ensure_ascii=False)[1:-1]
    at = made.index('"steps": [null]') + len('"steps": [')
    start, end = anchor.node.start_mark.index, anchor.node.end_mark.index
    return [Change(start, start, made[:at]), Change(end, end, made[at + len("null") :])]


def _check_movable(outline: Outline, anchor: Step) -> None:
    for target, node in jumps(outline.root, skip=(anchor.node,)):
        if target == anchor.name:
            raise outline.refusal(node, f"`next` jumps to {anchor.name}, and a branch cannot be jumped into")
    inside = {step.name for step in anchor.walk()} | {"continue", "break"}
    if child(anchor.body, "next"):
        inside.discard(anchor.name)
    for target, node in jumps(anchor.body):
        if target not in inside:
            raise outline.refusal(node, f"{anchor.name} jumps to {target} (`next`), and a branch cannot jump out")
    for key in ("return", "raise"):
        if child(anchor.body, key):
            raise outline.refusal(anchor.node, f"{anchor.name} is a `{key}`: nothing can run side by side with it")


def _check_depth(entry: Entry, steps: StepList) -> None:
    if parallel_depth(steps) + _depth_of(entry.data) > MAX_DEPTH:
        raise SpliceError(f"{entry.name} brings a parallel step: {_TOO_DEEP}; choose a place further out")


def _depth(step: Step) -> int:
    inner = max((_depth(child_step) for steps in step.lists for child_step in steps.steps), default=0)
    return inner + (1 if child(step.body, "parallel") else 0)


def _depth_of(data: Any) -> int:
    if isinstance(data, dict):
        return max((_depth_of(value) + (key == "parallel") for key, value in data.items()), default=0)
    return max(map(_depth_of, data), default=0) if isinstance(data, list) else 0


def init_lines(name: str, variables: Sequence[str | None]) -> list[str]:
    """A step that makes variables before branches share them."""
    return [f"- init_{name}:", "    assign:", *(f"      - {variable}: null" for variable in variables)]


def _branch(name: str, lines: list[str]) -> list[str]:
    return [f"- {name}_branch:", "    steps:", *("      " + line for line in lines)]


def _entry_after(outline: Outline, steps: yaml.SequenceNode, index: int, lines: list[str]) -> Change:
    node, text = steps.value[index], outline.text
    if steps.flow_style:
        start = node.start_mark.index
        prefix = text[line_start(text, start) : start]
        gap = newline(text, start) + prefix if not prefix.strip() and index else " "
        flow = json.dumps(yaml.safe_load("\n".join(lines))[0], ensure_ascii=False)
        return Change(node.end_mark.index, node.end_mark.index, f",{gap}{flow}")
    column = steps.start_mark.column
    return insertion(text, block_end(text, node, column), lines, " " * column)


def _lines_before(outline: Outline, step: Step, lines: list[str]) -> Change:
    if step.within.flow:
        flow = json.dumps(yaml.safe_load("\n".join(lines))[0], ensure_ascii=False)
        return Change(step.node.start_mark.index, step.node.start_mark.index, f"{flow}, ")
    dash = outline.dash(step)
    start = line_start(outline.text, dash)
    check_own_line(outline, start, dash, step.name)
    return insertion(outline.text, start, lines, " " * (dash - start))


def _share(outline: Outline, parallel: yaml.Node | None, variable: str) -> Change:
    """One more variable in `shared` of a parallel step."""
    assert isinstance(parallel, yaml.MappingNode)
    shared = child(parallel, "shared")
    if isinstance(shared, yaml.SequenceNode):
        if not shared.flow_style:
            return _entry_after(outline, shared, len(shared.value) - 1, [f"- {variable}"])
        at = shared.value[-1].end_mark.index if shared.value else shared.start_mark.index + 1
        return Change(at, at, f", {variable}" if shared.value else variable)
    if parallel.flow_style:
        at = parallel.start_mark.index + 1
        return Change(at, at, f'"shared": ["{variable}"], ')
    key = parallel.value[0][0]
    start = line_start(outline.text, key.start_mark.index)
    check_own_line(outline, start, key.start_mark.index, "shared")
    return insertion(outline.text, start, [f"shared: [{variable}]"], " " * key.start_mark.column)


def check_own_line(outline: Outline, start: int, at: int, name: str) -> None:
    if outline.text[start:at].strip(" "):
        line = outline.text.count("\n", 0, at) + 1
        raise SpliceError(f"{outline.file}:{line}: {name} does not begin on a line of its own: edit it by hand")


def at_path(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def finish(outline: Outline, changes: list[Change], change_data: Any) -> str:
    """The changed text, if it is YAML that says exactly what the changed data says."""
    expected = copy.deepcopy(outline.data)
    change_data(expected)
    text = apply(outline.text, changes)
    try:
        made = Outline(text, outline.file).data
    except SpliceError:
        made = None
    if made != expected:
        raise SpliceError(f"{outline.file} is laid out so that it cannot be edited safely here: do it by hand")
    return text
