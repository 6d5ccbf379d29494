"""YAML or JSON text to a tree of `Node`s that know where they stand.

Scalars follow YAML 1.2's core schema (``yes`` is a string, ``0o17`` an integer). Keys are always strings. Anchors,
aliases, merge keys and tags are refused: nothing says that Workflows takes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from . import expressions
from .expressions import Expression, ExpressionError
from .limits import EXPRESSION_LIMIT, NESTING_LIMIT
from .values import INT_MAX, INT_MIN, Value

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Mark(NamedTuple):
    """A place in the source, from line 1 and column 1."""

    line: int
    column: int


@dataclass(eq=False)
class Node:
    """One value of the source. `value` is plain data, with ``${...}`` left as text.

    A list has `items`; a map `fields` and the places of its keys, and in `computed` those keys that are expressions; a
    scalar that is an expression has `expression`.
    """

    at: Mark
    value: Value
    expression: Expression | None = None
    items: list[Node] = field(default_factory=list)
    fields: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)
    computed: dict[str, Expression] = field(default_factory=dict)

    def walk(self) -> Iterator[Node]:
        """This node and all below."""
        yield self
        for child in (*self.items, *self.fields.values()):
            yield from child.walk()

    def is_constant(self) -> bool:
        return all(node.expression is None and not node.computed for node in self.walk())

    def constant(self) -> Value:
        """The value, when there is no expression in it. Raises `ValueError` if there is."""
        if not self.is_constant():
            raise ValueError("the value has expressions in it")
        return self.value


Report = Callable[[Mark, str], None]


class SourceError(Exception):
    """The text is neither YAML nor JSON, or uses what Workflows does not take."""

    def __init__(self, at: Mark, message: str) -> None:
        self.at = at
        super().__init__(message)


def parse(text: str, report: Report) -> Node:
    """The tree of a source; wrong expressions and keys go to `report`. Raises SourceError where it cannot go on."""
    if text.lstrip()[:1] in ("{", "["):
        text = _PAIR.sub(_joined, text)
    _scan(text)
    try:
        document = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        at = _mark(error.problem_mark or error.context_mark)
        raise SourceError(at, f"not valid YAML: {error.problem}{_hint(text, at, str(error.problem))}") from error
    except yaml.YAMLError as error:
        raise SourceError(Mark(1, 1), f"not valid YAML: {str(error).splitlines()[0]}") from error
    if document is None:
        raise SourceError(Mark(1, 1), "the source is empty: write a list of steps, or a map with main")
    return _Builder(report).node(document)


_PAIR = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)


def _joined(found: re.Match[str]) -> str:
    """JSON's two escapes of one character beyond 16 bits as YAML's one; any other escape as it is."""
    if found.group(1) is None:
        return found.group()
    high, low = int(found.group(1), 16), int(found.group(2), 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


def _scan(text: str) -> None:
    """Refuse anchors and aliases, which vanish from the composed tree, and nesting that no tree should have."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if getattr(event, "anchor", None) is not None:
                at = _mark(event.start_mark)
                raise SourceError(at, "YAML anchors and aliases are not emulated: write the value out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > NESTING_LIMIT:
                raise SourceError(_mark(event.start_mark), f"nested more than {NESTING_LIMIT} levels deep")
    except yaml.YAMLError:
        return  # reported with its place by `parse`


def _mark(mark: Any) -> Mark:
    """Of a mark of the YAML library, which counts from 0."""
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)


def _hint(text: str, at: Mark, problem: str) -> str:
    lines = text.splitlines()
    line = lines[at.line - 1] if at.line <= len(lines) else ""
    if "\t" in line[: max(at.column, 1)] or "'\\t'" in problem:
        return "; indent with spaces, not tabs"
    if "${" in line:
        return "; put single quotes around an expression that has a colon, a # or quotes in it: '${...}'"
    return ""


class _Builder:
    def __init__(self, report: Report) -> None:
        self._report = report

    def node(self, node: yaml.Node) -> Node:
        at = _mark(node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, at)
        if isinstance(node, yaml.SequenceNode):
            items = [self.node(item) for item in node.value]
            return Node(at, [item.value for item in items], items=items)
        return self._map(node, at)

    def _map(self, node: yaml.Node, at: Mark) -> Node:
        result = Node(at, {})
        for key_node, value_node in node.value:
            place = _mark(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self._report(place, "a key must be a string")
                continue
            key = key_node.value
            if key == "<<" and not key_node.style:
                self._report(place, "YAML merge keys are not emulated: write the keys out")
            if key in result.fields:
                self._report(place, f'duplicate key "{key}": remove one')
            if expressions.is_expression(key):
                expression = self._expression(key, key_node, place)
                if expression is not None:
                    result.computed[key] = expression
            child = self.node(value_node)
            result.fields[key] = child
            result.keys[key] = place
            result.value[key] = child.value
        return result

    def _scalar(self, node: yaml.ScalarNode, at: Mark) -> Node:
        text: str = node.value
        if not node.style:  # plain: the C and the Python loader differ in how they say so
            value = self._plain(text, at)
            if not isinstance(value, str):
                return Node(at, value)
        if not expressions.is_expression(text):
            return Node(at, text)
        expression = self._expression(text, node, at)
        return Node(at, None) if expression is None else Node(at, text, expression)

    def _expression(self, text: str, node: yaml.ScalarNode, at: Mark) -> Expression | None:
        if len(text) > EXPRESSION_LIMIT:
            size = f"{len(text)} characters, more than {EXPRESSION_LIMIT}"
            self._report(at, f"the expression has {size}: split it over variables")
        try:
            return expressions.parse(text)
        except ExpressionError as error:
            self._report(_place(node, at, error.offset), f"error in expression {text}: {error}")
            return None

    def _plain(self, text: str, at: Mark) -> Value:
        try:
            return resolve(text)
        except ValueError as error:
            self._report(at, str(error))
            return None


def _place(node: yaml.ScalarNode, at: Mark, offset: int) -> Mark:
    """Where a character of a scalar stands; the scalar's start when it spans lines or has escapes."""
    quote = 1 if node.style in ("'", '"') else 0
    one_line = node.start_mark.line == node.end_mark.line
    if one_line and node.end_mark.column - node.start_mark.column == len(node.value) + 2 * quote:
        return Mark(at.line, at.column + quote + offset)
    return at


_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Value] = {
    **{"": None, "~": None, "null": None, "Null": None, "NULL": None},
    **{"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False},
}


def resolve(text: str) -> Value:
    """The value of a plain scalar. Raises `ValueError` for a number that no int64 or double holds."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        number = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if not INT_MIN <= number <= INT_MAX:
            raise ValueError(f"{text} does not fit in 64 bits")
        return number
    if _FLOAT.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"{text} is too large for a double")
        return value
    if text.lower() in (".nan", ".inf", "-.inf", "+.inf"):
        raise ValueError(f"{text} is not a number of Workflows")
    return text
