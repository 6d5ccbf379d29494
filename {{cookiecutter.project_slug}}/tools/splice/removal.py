"""Taking a function's calls out of a workflow file."""

from __future__ import annotations

from typing import Any

import yaml

from tools.splice.edits import at_path, check_own_line, finish
from tools.splice.outline import Outline, Path, SpliceError, Step, StepList, child, entries, pairs, scalar
from tools.splice.positions import Change, block_end, deletion, line_start
from tools.splice.variables import jumps, own, uses, written


def remove(outline: Outline, function: str) -> str:
    """The text without every call of `function`, and without what only held such calls. Raises SpliceError."""
    _check_elsewhere(outline, function)
    whole = _closure(outline, _calling(outline, function))
    branches = {steps for step in whole for steps in _emptied_branches(step, whole)}
    return _Removal(outline, whole, branches).text()


def _calling(outline: Outline, function: str) -> set[Step]:
    """The steps that go: the step of the function's name if it holds the function's calls alone, else each caller."""
    calling = {step for step in outline.walk() if any(name == function for name, _ in step.calls())}
    if not calling:
        raise SpliceError(f"{outline.file} does not call {function} in main")
    for step in outline.walk():
        inside = {name for inner in step.walk() for name, _ in inner.calls()}
        if step.name == function and inside == {function} and calling <= set(step.walk()):
            return {step}
    for step in calling:
        others = {name for inner in step.walk() for name, _ in inner.calls()} - {function}
        if others:
            also = ", ".join(sorted(others))
            raise outline.refusal(step.node, f"{step.name} also calls {also}: take the call of {function} out by hand")
    return calling


def _closure(outline: Outline, gone: set[Step]) -> set[Step]:
    """With the steps around them that would be left with nothing to do."""
    gone = set(gone)
    for steps in sorted({step.within for step in gone}, key=lambda steps: -len(steps.path)):
        at: StepList | None = steps
        while at and set(at.steps) <= gone:
            holder = at.holder
            if holder is None:
                raise SpliceError(f"{outline.file} would have no step left: a workflow needs one")
            if not all(set(other.steps) <= gone for other in holder.lists):
                if at.kind != "branch":
                    raise outline.refusal(
                        holder.node, f"{holder.name} would be left without steps: take it out by hand"
                    )
                break
            gone.add(holder)
            at = holder.within
    return {step for step in gone if not any(around.holder in gone for around in step.within.chain())}


def _emptied_branches(step: Step, gone: set[Step]) -> list[StepList]:
    return [step.within] if step.within.kind == "branch" and set(step.within.steps) <= gone else []


class _Removal:
    """Works the removal out as text and as data, last place first, so that what comes before keeps its place."""

    def __init__(self, outline: Outline, gone: set[Step], branches: set[StepList]) -> None:
        self._outline = outline
        self._gone = gone
        self._branches = branches
        self._changes: list[Change] = []
        self._edits: list[tuple[int, Path, list[Any] | None]] = []  # position, path of an entry, what takes its place

    def text(self) -> str:
        holders = {steps.holder for steps in self._branches if steps.holder}
        alone = {step for step in self._gone if step.within not in self._branches}
        self._check_uses()
        self._check_jumps()
        for holder in holders:
            gone = [steps for steps in holder.lists if steps in self._branches]
            left = [steps for steps in holder.lists if steps not in self._branches]
            names = {step.name for steps in gone for step in steps.steps}
            if len(left) == 1:
                self._unwrap(holder, left[0])
                self._cut_init(holder, {*names, holder.name})
            else:
                for steps in gone:
                    self._cut_branch(holder, steps)
                self._cut_init(holder, names)
        for step in alone:
            self._cut(step.within.node, step.index, (*step.within.path, step.index))
            self._cut_init(step, {step.name})
        return finish(self._outline, self._changes, self._change_data)

    def _change_data(self, data: Any) -> None:
        for _, path, instead in sorted(self._edits, key=lambda edit: edit[0], reverse=True):
            *parent, index = path
            sequence = at_path(data, tuple(parent))
            if sequence == [sequence[0]] and instead is None and parent[-1] == "shared":
                del at_path(data, tuple(parent[:-1]))["shared"]
            else:
                assert isinstance(index, int)
                sequence[index : index + 1] = instead or []

    def _cut(self, sequence: yaml.SequenceNode, index: int, path: Path) -> None:
        """Take one entry out of a list."""
        node = sequence.value[index]
        if not sequence.flow_style:
            self._changes.append(self._lines(node, sequence.start_mark.column))
        else:
            self._changes.append(_flow_cut(self._outline.text, sequence, index))
        self._edits.append((node.start_mark.index, path, None))

    def _lines(self, node: yaml.Node, column: int) -> Change:
        text = self._outline.text
        dash = self._outline.dash_before(node)
        start = line_start(text, dash)
        check_own_line(self._outline, start, dash, "the step")
        return deletion(text, start, block_end(text, node, column))

    def _cut_branch(self, holder: Step, steps: StepList) -> None:
        branches = child(child(holder.body, "parallel"), "branches")
        assert isinstance(branches, yaml.SequenceNode)
        *path, index, _, _ = steps.path
        self._cut(branches, int(index), (*path, index))
        self._unshare(holder, set().union(*(written(step) for step in steps.steps)))

    def _unshare(self, holder: Step, names: set[str]) -> None:
        """Variables that nobody else writes are shared no more."""
        shared = child(child(holder.body, "parallel"), "shared")
        if not isinstance(shared, yaml.SequenceNode):
            return
        others = set().union(*(own(step) for step in holder.walk() if step not in self._gone))
        for index, node in enumerate(shared.value):
            if scalar(node) in names - others:
                path = (*holder.within.path, holder.index, holder.name, "parallel", "shared")
                if len(shared.value) == 1:
                    self._cut_shared(holder, shared, path)
                else:
                    self._cut(shared, index, (*path, index))

    def _cut_shared(self, holder: Step, shared: yaml.SequenceNode, path: Path) -> None:
        parallel = child(holder.body, "parallel")
        if not isinstance(parallel, yaml.MappingNode) or parallel.flow_style or parallel.value[0][1] is not shared:
            return
        text, key = self._outline.text, parallel.value[0][0]
        start = line_start(text, key.start_mark.index)
        check_own_line(self._outline, start, key.start_mark.index, "shared")
        self._changes.append(Change(start, block_end(text, shared, key.start_mark.column), ""))
        self._edits.append((key.start_mark.index, (*path, 0), None))

    def _unwrap(self, holder: Step, left: StepList) -> None:
        """The steps of the one branch that is left take the place of the parallel step."""
        text, sequence = self._outline.text, holder.within.node
        first, last = left.steps[0], left.steps[-1]
        if sequence.flow_style:
            inner = text[first.node.start_mark.index : last.node.end_mark.index]
            self._changes.append(Change(holder.node.start_mark.index, holder.node.end_mark.index, inner))
        else:
            if left.flow:
                raise self._outline.refusal(holder.node, f"{holder.name} mixes block and flow style: edit it by hand")
            inner_start = line_start(text, self._outline.dash(first))
            inner_end = block_end(text, last.node, left.node.start_mark.column)
            by = left.node.start_mark.column - sequence.start_mark.column
            inner = "".join(_dedent(line, by) for line in text[inner_start:inner_end].splitlines(keepends=True))
            end = block_end(text, holder.node, sequence.start_mark.column)
            dash = self._outline.dash(holder)
            start = line_start(text, dash)
            check_own_line(self._outline, start, dash, holder.name)
            if end == len(text) and not text.endswith("\n"):
                inner = inner.rstrip("\r\n")
            self._changes.append(Change(start, end, inner))
        steps = [at_path(self._outline.data, (*left.path, step.index)) for step in left.steps]
        self._edits.append((holder.node.start_mark.index, (*holder.within.path, holder.index), steps))

    def _cut_init(self, step: Step, names: set[str]) -> None:
        """The step before that only made the removed step's variables (see `edits.init_lines`)."""
        if step.index == 0:
            return
        before = step.within.steps[step.index - 1]
        if before.name not in {f"init_{name}" for name in names} or before in self._gone:
            return
        assign = child(before.body, "assign")
        only_assigns = len(list(pairs(before.body))) == 1 and isinstance(assign, yaml.SequenceNode)
        if only_assigns and all(scalar(value) == "null" for entry in entries(assign) for _, value in pairs(entry)):
            self._cut(before.within.node, before.index, (*before.within.path, before.index))

    def _check_uses(self) -> None:
        nodes = tuple(step.node for step in self._gone)
        inside = set().union(*(written(step) for step in self._gone))
        others = set().union(
            *(own(step) for step in self._outline.walk() if not self._goes(step) and not _is_init(step))
        )
        for name, node in uses(self._outline.root, skip=nodes):
            if name in inside - others:
                raise self._outline.refusal(
                    node, f"{name} is used here, and the removed step sets it: change this first"
                )

    def _check_jumps(self) -> None:
        nodes = tuple(step.node for step in self._gone)
        names = {step.name for step in self._gone}
        for target, node in jumps(self._outline.root, skip=nodes):
            if target in names:
                raise self._outline.refusal(node, f"`next` jumps to {target}: change this first")
        for step in self._gone:
            if child(step.body, "next"):
                raise self._outline.refusal(step.node, f"{step.name} jumps elsewhere (`next`): take it out by hand")

    def _goes(self, step: Step) -> bool:
        return step in self._gone or any(around.holder in self._gone for around in step.within.chain())


def _flow_cut(text: str, sequence: yaml.SequenceNode, index: int) -> Change:
    """An entry of a flow list with one of its commas: the one on its own line, which came with it."""
    node = sequence.value[index]
    start, end = node.start_mark.index, node.end_mark.index
    before = sequence.value[index - 1].end_mark.index if index else None
    after = sequence.value[index + 1].start_mark.index if index + 1 < len(sequence.value) else None
    if after is not None and (before is None or ("\n" in text[before:start] and "\n" not in text[end:after])):
        return Change(start, after, "")
    return Change(start if before is None else before, end, "")


def _is_init(step: Step) -> bool:
    return step.name.startswith("init_")


def _dedent(line: str, by: int) -> str:
    blank = len(line) - len(line.lstrip(" "))
    return line[min(by, blank) :]


def _check_elsewhere(outline: Outline, function: str) -> None:
    """A subworkflow's calls are the user's to change."""
    for name, workflow in pairs(outline.root):
        pending: list[yaml.Node] = [] if name == "main" else [workflow]
        while pending:
            node = pending.pop()
            if isinstance(node, yaml.SequenceNode):
                pending.extend(node.value)
            elif isinstance(node, yaml.MappingNode):
                pending.extend(value for _, value in node.value)
                if scalar(child(node, "call")) == "run_step" and scalar(child(child(node, "args"), "step")) == function:
                    raise outline.refusal(node, f"the subworkflow {name} calls {function}: take that out by hand")
