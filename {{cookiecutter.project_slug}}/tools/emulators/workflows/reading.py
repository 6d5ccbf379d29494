"""The schema: a tree of `Node`s to the model, with a finding for everything that is not of the language's form."""

from __future__ import annotations

from collections.abc import Iterable

from . import expressions, limits
from .errors import Finding
from .expressions import ExpressionError, Name
from .model import (
    Assign,
    Assignment,
    Body,
    Branch,
    Call,
    Case,
    Handler,
    Jump,
    Loop,
    Nested,
    Parallel,
    Param,
    Raise,
    Retry,
    Return,
    Step,
    Switch,
    Try,
    Workflow,
)
from .source import Mark, Node

_BODIES = ("assign", "call", "switch", "for", "parallel", "raise", "try", "return", "steps")
_COMPANIONS = {"call": {"args", "result"}, "try": {"retry", "except"}}
RESERVED = {"end", "break", "continue"}


class Findings:
    """Collects what is wrong, with the step it is in."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.all: list[Finding] = []
        self.step = ""

    def add(self, at: Mark, message: str) -> None:
        self.all.append(Finding(self._file, at.line, at.column, self.step, message))


def read(root: Node, findings: Findings) -> dict[str, Workflow]:
    """Every workflow of a source, main among them unless a finding says so."""
    if isinstance(root.value, list):
        return {"main": Workflow("main", root.at, [], _Reader("main", findings).steps(root))}
    if not isinstance(root.value, dict):
        findings.add(root.at, "a source is a list of steps, or a map with main and its subworkflows")
        return {}
    if "main" not in root.fields:
        findings.add(root.at, "there is no main workflow: add main with steps")
    return {name: _workflow(name, root.keys[name], node, findings) for name, node in root.fields.items()}


def _workflow(name: str, at: Mark, node: Node, findings: Findings) -> Workflow:
    findings.step = ""
    if not name.isidentifier() or not name.isascii():
        findings.add(at, f'"{name}" is no name of a workflow: use letters, digits and _')
    reader = _Reader(name, findings)
    if not isinstance(node.value, dict):
        findings.add(node.at, f'workflow "{name}" is not a map with steps: write {name}: and steps: below it')
        return Workflow(name, at, [], [])
    reader.only(node, {"params", "steps"}, f'workflow "{name}"')
    params = reader.params(node.fields["params"]) if "params" in node.fields else []
    steps = node.fields.get("steps")
    if steps is None:
        findings.add(at, f'workflow "{name}" has no steps')
        return Workflow(name, at, params, [])
    return Workflow(name, at, params, reader.steps(steps))


class _Reader:
    """Reads the steps of one workflow."""

    def __init__(self, routine: str, findings: Findings) -> None:
        self._routine = routine
        self._findings = findings

    def params(self, node: Node) -> list[Param]:
        if not isinstance(node.value, list):
            self._wrong(node, "params is a list of names")
            return []
        params = [param for item in node.items if (param := self._param(item)) is not None]
        if self._routine == "main" and len(node.items) > 1:
            self._wrong(node, "main takes at most one parameter: the execution's argument")
        if len(node.items) > limits.PARAMETERS_LIMIT:
            self._wrong(node, f"{len(node.items)} parameters, more than {limits.PARAMETERS_LIMIT}")
        seen: set[str] = set()
        for param in params:
            if param.name in seen:
                self._findings.add(param.at, f'duplicate parameter "{param.name}"')
            seen.add(param.name)
        return params

    def _param(self, node: Node) -> Param | None:
        if isinstance(node.value, dict) and len(node.fields) == 1:
            name, default = next(iter(node.fields.items()))
            if not default.is_constant():
                self._wrong(default, f'the default of parameter "{name}" is a constant, not an expression')
            at = node.keys[name]
            return Param(name, at, default) if self._is_name(name, at, "a parameter") else None
        if isinstance(node.value, str):
            return Param(node.value, node.at, None) if self._is_name(node.value, node.at, "a parameter") else None
        self._wrong(node, "a parameter is a name, or a name with its default: `country: England`")
        return None

    def steps(self, node: Node) -> list[Step]:
        if not isinstance(node.value, list):
            self._wrong(node, "steps is a list of steps: begin each with `- name:`")
            return []
        if not node.items:
            self._wrong(node, "there are no steps: write at least one")
        return [step for item in node.items if (step := self._step(item)) is not None]

    def _step(self, node: Node) -> Step | None:
        if not isinstance(node.value, dict) or len(node.fields) != 1:
            self._wrong(node, "a step is a map of one key, its name: indent the step's body below it")
            return None
        name, body = next(iter(node.fields.items()))
        at = node.keys[name]
        outer, self._findings.step = self._findings.step, name
        try:
            if name in RESERVED or not name:
                self._findings.add(at, f'"{name}" cannot be the name of a step: choose another')
            if not isinstance(body.value, dict):
                self._wrong(body, f'step "{name}" has no body: write assign, call, switch or another below it')
                return None
            return self._body_step(name, at, body, set())
        finally:
            self._findings.step = outer

    def _body_step(self, name: str, at: Mark, node: Node, also: set[str], *, inline: bool = False) -> Step:
        kinds = [kind for kind in _BODIES if kind in node.fields]
        allowed = {"next", *also, *kinds[:1], *(_COMPANIONS.get(kinds[0], ()) if kinds else ())}
        if len(kinds) > 1:
            self._findings.add(
                node.keys[kinds[1]], f'a step has one body: "{kinds[0]}" and "{kinds[1]}" need two steps'
            )
            allowed |= set(kinds)
        self.only(node, allowed, "a step" if not kinds else f'a step with "{kinds[0]}"')
        jump = node.fields.get("next")
        target = self._text(jump, "next is the name of a step, or end, break, continue") if jump is not None else None
        if not kinds and jump is None:
            self._wrong(
                node, "a step needs a body: assign, call, switch, for, parallel, raise, try, return, steps or next"
            )
        if kinds and kinds[0] in ("return", "raise") and jump is not None:
            self._wrong(jump, f"next is never reached after {kinds[0]}: remove it")
        body = self._body(name, kinds[0], node) if kinds else Jump()
        return Step(name, self._routine, at, body, target, jump.at if jump is not None else None, inline)

    def _body(self, name: str, kind: str, node: Node) -> Body:
        value = node.fields[kind]
        match kind:
            case "assign":
                return self._assign(value)
            case "call":
                return self._call(node, value)
            case "switch":
                return self._switch(name, value)
            case "for":
                return self._loop(value)
            case "parallel":
                return self._parallel(value)
            case "raise":
                if value.expression is None and not isinstance(value.value, str | dict):
                    self._wrong(value, "raise takes a string or a map")
                return Raise(value)
            case "try":
                return self._try(name, node, value)
            case "return":
                return Return(value)
            case _:
                return Nested(self.steps(value))

    def _assign(self, node: Node) -> Assign:
        if not isinstance(node.value, list):
            self._wrong(node, "assign is a list: begin each assignment with `- `")
            return Assign([])
        if not 1 <= len(node.items) <= limits.ASSIGNMENTS_LIMIT:
            self._wrong(node, f"assign has {len(node.items)} entries: 1 to {limits.ASSIGNMENTS_LIMIT} are allowed")
        return Assign([entry for item in node.items if (entry := self._assignment(item)) is not None])

    def _assignment(self, node: Node) -> Assignment | None:
        if not isinstance(node.value, dict) or len(node.fields) != 1:
            self._wrong(node, "an assignment is a map of one key, the variable: `- x: 1`")
            return None
        text, value = next(iter(node.fields.items()))
        at = node.keys[text]
        try:
            return Assignment(text, expressions.parse_target(text), at, value)
        except ExpressionError as error:
            self._findings.add(at, f'"{text}" cannot be assigned to: {error}')
            return None

    def _call(self, node: Node, value: Node) -> Call:
        name = self._text(value, "call is the name of a function or a subworkflow, not an expression")
        args = node.fields.get("args", Node(value.at, {}))
        if not isinstance(args.value, dict | None):
            self._wrong(args, "args is a map of arguments by name")
        for key in args.computed:
            self._findings.add(args.keys[key], "the name of an argument cannot be an expression")
        result, result_at = node.fields.get("result"), None
        variable = None
        if result is not None:
            variable, result_at = self._text(result, "result is the name of a variable"), result.at
            if variable is not None and not self._is_name(variable, result.at, "a variable"):
                variable = None
        return Call(name or "", value.at, args.fields, args.keys, variable, result_at)

    def _switch(self, name: str, node: Node) -> Switch:
        if not isinstance(node.value, list):
            self._wrong(node, "switch is a list of conditions: begin each with `- condition:`")
            return Switch([])
        if not 1 <= len(node.items) <= limits.CONDITIONS_LIMIT:
            self._wrong(node, f"switch has {len(node.items)} conditions: 1 to {limits.CONDITIONS_LIMIT} are allowed")
        return Switch([case for item in node.items if (case := self._case(name, item)) is not None])

    def _case(self, name: str, node: Node) -> Case | None:
        if not isinstance(node.value, dict) or "condition" not in node.fields:
            self._wrong(node, "an entry of switch is a map with condition and what is done then")
            return None
        condition = node.fields["condition"]
        if condition.expression is None and not isinstance(condition.value, bool):
            self._wrong(condition, "a condition is ${...} that gives a boolean, or true")
        return Case(condition, node.at, self._body_step(name, node.at, node, {"condition"}, inline=True))

    def _loop(self, node: Node) -> Loop:
        steps: list[Step] = []
        if not isinstance(node.value, dict):
            self._wrong(node, "for is a map with value, in or range, and steps")
            return Loop("", None, None, None, node.at, steps)
        self.only(node, {"value", "index", "in", "range", "steps"}, "for")
        value, index = self._variable(node, "value"), self._variable(node, "index")
        if "value" not in node.fields:
            self._wrong(node, "for needs value: the name of the loop variable")
        items, bounds = node.fields.get("in"), node.fields.get("range")
        if (items is None) == (bounds is None):
            self._wrong(node, "for needs one of in and range")
        if items is not None and items.expression is None and not isinstance(items.value, list):
            self._wrong(items, "in takes a list, or an expression that gives one; for a map use ${keys(m)}")
        if bounds is not None and bounds.expression is None and not self._is_range(bounds):
            self._wrong(bounds, "range is a list of the first and the last number, both included")
        if "steps" in node.fields:
            steps = self.steps(node.fields["steps"])
        else:
            self._wrong(node, "for has no steps")
        return Loop(value or "", index, items, bounds, node.at, steps)

    @staticmethod
    def _is_range(node: Node) -> bool:
        ends = [item for item in node.items if item.expression or type(item.value) in (int, float)]
        return len(ends) == len(node.items) == 2

    def _variable(self, node: Node, key: str) -> str | None:
        if key not in node.fields:
            return None
        name = self._text(node.fields[key], f"{key} is the name of a variable")
        return name if name is not None and self._is_name(name, node.fields[key].at, "a variable") else None

    def _parallel(self, node: Node) -> Parallel:
        if not isinstance(node.value, dict):
            self._wrong(node, "parallel is a map with branches or for")
            return Parallel([], None, [], None)
        self.only(node, {"shared", "concurrency_limit", "exception_policy", "branches", "for"}, "parallel")
        if ("branches" in node.fields) == ("for" in node.fields):
            self._wrong(node, "parallel needs one of branches and for")
        policy = node.fields.get("exception_policy")
        if policy is not None and policy.value != "continueAll":
            self._wrong(policy, "continueAll is the only exception_policy")
        limit = node.fields.get("concurrency_limit")
        if limit is not None and limit.expression is None and (type(limit.value) is not int or limit.value < 1):
            self._wrong(limit, "concurrency_limit is a positive integer")
        branches = self._branches(node.fields["branches"]) if "branches" in node.fields else []
        loop = self._loop(node.fields["for"]) if "for" in node.fields else None
        return Parallel(self._shared(node.fields.get("shared")), limit, branches, loop)

    def _shared(self, node: Node | None) -> list[tuple[str, Mark]]:
        if node is None:
            return []
        if not isinstance(node.value, list) or not all(isinstance(name, str) for name in node.value):
            self._wrong(node, "shared is a list of names of variables")
            return []
        return [(item.value, item.at) for item in node.items if self._is_name(item.value, item.at, "a variable")]

    def _branches(self, node: Node) -> list[Branch]:
        if not isinstance(node.value, list):
            self._wrong(node, "branches is a list of named branches")
            return []
        if not limits.BRANCHES_MINIMUM <= len(node.items) <= limits.BRANCHES_LIMIT:
            allowed = f"{limits.BRANCHES_MINIMUM} to {limits.BRANCHES_LIMIT} are allowed"
            self._wrong(node, f"parallel has {len(node.items)} branches: {allowed}")
        branches: list[Branch] = []
        for item in node.items:
            branch = self._branch(item)
            if branch is None:
                continue
            if branch.name in {other.name for other in branches}:
                self._findings.add(branch.at, f'duplicate branch "{branch.name}": rename one')
            branches.append(branch)
        return branches

    def _branch(self, node: Node) -> Branch | None:
        body = next(iter(node.fields.values())) if len(node.fields) == 1 else None
        if body is None or not isinstance(body.value, dict) or "steps" not in body.fields:
            self._wrong(node, "a branch is a map of one key, its name, with steps")
            return None
        name = next(iter(node.fields))
        self.only(body, {"steps"}, "a branch")
        return Branch(name, node.keys[name], self.steps(body.fields["steps"]))

    def _try(self, name: str, node: Node, value: Node) -> Try:
        retry, handler = node.fields.get("retry"), node.fields.get("except")
        if retry is None and handler is None:
            self._wrong(value, "try needs retry or except")
        if not isinstance(value.value, dict):
            self._wrong(value, "try holds one body, such as call, or steps")
            return Try([], None, None)
        if list(value.fields) == ["steps"]:
            steps = self.steps(value.fields["steps"])
        else:
            steps = [self._body_step(name, value.at, value, set(), inline=True)]
        return Try(steps, self._retry(retry), self._handler(handler))

    def _retry(self, node: Node | None) -> Retry | None:
        if node is None:
            return None
        if node.expression is not None:
            return Retry(node.at, node, None, None, None)
        if not isinstance(node.value, dict):
            self._wrong(
                node, "retry is a policy such as ${http.default_retry}, or a map with predicate, max_retries, backoff"
            )
            return None
        self.only(node, {"predicate", "max_retries", "backoff"}, "retry")
        for key in ("predicate", "max_retries", "backoff"):
            if key not in node.fields:
                self._wrong(node, f"retry has no {key}: give it, or use a policy such as ${{http.default_retry}}")
        backoff = node.fields.get("backoff")
        if backoff is not None and backoff.expression is None:
            self._backoff(backoff)
        return Retry(node.at, None, node.fields.get("predicate"), node.fields.get("max_retries"), backoff)

    def _backoff(self, node: Node) -> None:
        keys = {"initial_delay", "max_delay", "multiplier"}
        if not isinstance(node.value, dict):
            self._wrong(node, "backoff is a map with initial_delay, max_delay and multiplier")
            return
        self.only(node, keys, "backoff")
        for key in sorted(keys - node.fields.keys()):
            self._wrong(node, f"backoff has no {key}")

    def _handler(self, node: Node | None) -> Handler | None:
        if node is None:
            return None
        if not isinstance(node.value, dict):
            self._wrong(node, "except is a map with as and steps")
            return None
        self.only(node, {"as", "steps"}, "except")
        name = self._variable(node, "as")
        if "as" not in node.fields:
            self._wrong(node, "except has no as: name the variable that gets the error")
        if "steps" not in node.fields:
            self._wrong(node, "except has no steps")
            return None
        return Handler(name or "", node.at, self.steps(node.fields["steps"]))

    def only(self, node: Node, allowed: Iterable[str], where: str) -> None:
        """A finding for each key that does not belong there."""
        for key in node.fields:
            if key not in allowed:
                self._findings.add(
                    node.keys[key], f'unknown key "{key}" in {where}: one of {", ".join(sorted(allowed))}'
                )

    def _text(self, node: Node, message: str) -> str | None:
        if isinstance(node.value, str) and node.expression is None and node.value:
            return node.value
        self._wrong(node, message)
        return None

    def _is_name(self, text: str, at: Mark, what: str) -> bool:
        try:
            tree = expressions.parse_target(text)
        except ExpressionError:
            tree = None
        if isinstance(tree, Name) and text == tree.name:
            return True
        self._findings.add(at, f'"{text}" is no name of {what}: use letters, digits and _, not beginning with a digit')
        return False

    def _wrong(self, node: Node, message: str) -> None:
        self._findings.add(node.at, message)
