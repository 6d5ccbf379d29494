"""The expression grammar: the text between ``${`` and ``}`` to a tree.

Precedence, high to low: ``()`` ``.`` ``[]``; ``not`` and unary ``-``; ``* / // %``; ``+ -``; ``< <= > >= == != in``;
``and``; ``or``. Operators of one level are left-associative. Strings are in double quotes with JSON's escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .values import INT_MAX, Value


class ExpressionError(Exception):
    """The text is no expression; `offset` counts characters from the start of the whole ``${...}``."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        super().__init__(message)


@dataclass(frozen=True)
class Literal:
    offset: int
    value: Value


@dataclass(frozen=True)
class ListLiteral:
    offset: int
    items: tuple[Tree, ...]


@dataclass(frozen=True)
class Name:
    """A variable, or the name of a subworkflow."""

    offset: int
    name: str


@dataclass(frozen=True)
class Member:
    offset: int
    container: Tree
    name: str


@dataclass(frozen=True)
class Index:
    offset: int
    container: Tree
    key: Tree


@dataclass(frozen=True)
class Unary:
    offset: int
    operator: str  # "-" or "not"
    operand: Tree


@dataclass(frozen=True)
class Binary:
    offset: int
    operator: str
    left: Tree
    right: Tree


@dataclass(frozen=True)
class Call:
    """A function of the library or a subworkflow, by its dotted name, with positional arguments."""

    offset: int
    name: str
    args: tuple[Tree, ...]


Tree = Literal | ListLiteral | Name | Member | Index | Unary | Binary | Call


@dataclass(frozen=True)
class Expression:
    """One ``${...}``: `text` is the whole scalar."""

    text: str
    tree: Tree

    def walk(self) -> Iterator[Tree]:
        """Every node, outermost first."""
        return _walk(self.tree)

    def calls(self) -> list[Call]:
        return [node for node in self.walk() if isinstance(node, Call)]

    def names(self) -> list[Name]:
        """The variables and subworkflows it reads; the first part of a library object's name too."""
        return [node for node in self.walk() if isinstance(node, Name)]


def is_expression(text: str) -> bool:
    """Whether a scalar is an expression: only when the whole of it is one."""
    return text.startswith("${") and text.endswith("}")


def parse(text: str) -> Expression:
    """The expression of a scalar for which `is_expression` holds. Raises ExpressionError."""
    parser = _Parser(text, 2, len(text) - 1)
    tree = parser.expression()
    parser.end()
    return Expression(text, tree)


def parse_target(text: str) -> Tree:
    """An assignment's target: ``x``, ``m.k``, ``l[i + 1]``. Raises ExpressionError for anything else."""
    parser = _Parser(text, 0, len(text))
    tree = parser.postfix()
    parser.end()
    base: Tree = tree
    while isinstance(base, Member | Index):
        base = base.container
    if not isinstance(base, Name):
        raise ExpressionError(
            0, f'"{text}" cannot be assigned to: a target is a variable, such as x, m.key or l[i + 1]'
        )
    return tree


def dotted(tree: Tree) -> str | None:
    """``a.b.c`` of a chain of names; None for anything else."""
    parts: list[str] = []
    while isinstance(tree, Member):
        parts.append(tree.name)
        tree = tree.container
    if not isinstance(tree, Name):
        return None
    return ".".join([tree.name, *reversed(parts)])


def _walk(tree: Tree) -> Iterator[Tree]:
    yield tree
    match tree:
        case Member(container=container):
            yield from _walk(container)
        case Index(container=container, key=key):
            yield from _walk(container)
            yield from _walk(key)
        case Unary(operand=operand):
            yield from _walk(operand)
        case Binary(left=left, right=right):
            yield from _walk(left)
            yield from _walk(right)
        case Call(args=items) | ListLiteral(items=items):
            for item in items:
                yield from _walk(item)


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<symbol>//|<=|>=|==|!=|[-+*/%<>()\[\].,])""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = {"and": "and", "AND": "and", "or": "or", "OR": "or", "not": "not", "NOT": "not", "in": "in"}
_CONSTANTS: dict[str, Value] = {
    **{"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False},
    **{"null": None, "Null": None, "NULL": None},
}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HINTS = {
    "'": "strings are in double quotes",
    "{": "a map cannot be written inside an expression: assign it to a variable first",
    "}": "an expression ends at the last } of the value, and text around ${...} is not filled in: join with +",
    "&": "use `and`",
    "|": "use `or`",
    "!": "use `not`",
    "?": "use if(condition, then, otherwise)",
    "=": "use == to compare",
    ":": "a map cannot be written inside an expression",
}


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, string, symbol, keyword, end
    text: str
    offset: int


def _tokens(text: str, start: int, end: int) -> list[_Token]:
    tokens: list[_Token] = []
    position = start
    while position < end:
        found = _TOKEN.match(text, position, end)
        if found is None:
            raise _unexpected(text, position)
        kind = found.lastgroup or ""
        if kind == "name" and found.group() in _KEYWORDS and not (tokens and tokens[-1].text == "."):
            kind = "keyword"
        if kind != "space":
            tokens.append(_Token(kind, found.group(), position))
        position = found.end()
    tokens.append(_Token("end", "", end))
    return tokens


def _unexpected(text: str, position: int) -> ExpressionError:
    character = text[position]
    if character == '"':
        return ExpressionError(position, 'a string is not closed: a " is missing')
    hint = _HINTS.get(character)
    return ExpressionError(position, f"unexpected {character!r}" + (f": {hint}" if hint else ""))


class _Parser:
    """Recursive descent, one method a level of precedence."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text
        self._tokens = _tokens(text, start, end)
        self._at = 0

    def expression(self) -> Tree:
        return self._left(("or",), self._and)

    def _and(self) -> Tree:
        return self._left(("and",), self._comparison)

    def _comparison(self) -> Tree:
        return self._left(("<", "<=", ">", ">=", "==", "!=", "in"), self._sum)

    def _sum(self) -> Tree:
        return self._left(("+", "-"), self._product)

    def _product(self) -> Tree:
        return self._left(("*", "/", "//", "%"), self._unary)

    def _left(self, operators: tuple[str, ...], operand: object) -> Tree:
        assert callable(operand)
        tree: Tree = operand()
        while (operator := self._take_operator(operators)) is not None:
            tree = Binary(operator.offset, operator.text.lower(), tree, operand())
        if self._peek().text.lower() == "not" and self._tokens[self._at + 1].text == "in":
            raise ExpressionError(self._peek().offset, "there is no `not in`: write not (x in y)")
        return tree

    def _unary(self) -> Tree:
        token = self._take_operator(("not", "-"))
        if token is None:
            return self.postfix()
        following = self._peek()
        if token.text == "-" and following.kind == "number" and following.text == str(INT_MAX + 1):
            self._next()
            return Literal(token.offset, -INT_MAX - 1)
        return Unary(token.offset, token.text.lower(), self._unary())

    def postfix(self) -> Tree:
        tree = self._primary()
        while True:
            token = self._peek()
            if token.text == "." and token.kind == "symbol":
                self._next()
                name = self._next()
                if name.kind != "name":
                    raise self._wrong(name, "the name of a key")
                tree = Member(name.offset, tree, name.text)
            elif token.text == "[" and token.kind == "symbol":
                self._next()
                tree = Index(token.offset, tree, self.expression())
                self._expect("]")
            elif token.text == "(" and token.kind == "symbol":
                tree = self._call(tree, token)
            else:
                return tree

    def _call(self, tree: Tree, token: _Token) -> Tree:
        name = dotted(tree)
        if name is None:
            raise ExpressionError(token.offset, "only functions and subworkflows can be called, by their name")
        self._next()
        start = tree
        while isinstance(start, Member):
            start = start.container
        return Call(start.offset, name, self._items(")"))

    def _primary(self) -> Tree:
        token = self._next()
        if token.kind == "number":
            return Literal(token.offset, _number(token))
        if token.kind == "string":
            return Literal(token.offset, _string(token))
        if token.kind == "name":
            if token.text in _CONSTANTS:
                return Literal(token.offset, _CONSTANTS[token.text])
            return Name(token.offset, token.text)
        if token.text == "(":
            tree = self.expression()
            self._expect(")")
            return tree
        if token.text == "[":
            return ListLiteral(token.offset, self._items("]"))
        raise self._wrong(token, "a value")

    def _items(self, closing: str) -> tuple[Tree, ...]:
        items: list[Tree] = []
        if self._peek().text == closing:
            self._next()
            return ()
        while True:
            items.append(self.expression())
            token = self._next()
            if token.kind == "symbol" and token.text == closing:
                return tuple(items)
            if token.text != ",":
                raise self._wrong(token, f'"," or "{closing}"')

    def end(self) -> None:
        if self._peek().kind != "end":
            raise self._wrong(self._peek(), "an operator or the end")

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take_operator(self, operators: tuple[str, ...]) -> _Token | None:
        token = self._peek()
        if token.kind in ("symbol", "keyword") and token.text.lower() in operators:
            return self._next()
        return None

    def _expect(self, symbol: str) -> None:
        token = self._next()
        if token.kind != "symbol" or token.text != symbol:
            raise self._wrong(token, f'"{symbol}"')

    def _wrong(self, token: _Token, expected: str) -> ExpressionError:
        found = "the end" if token.kind == "end" else f'"{token.text}"'
        return ExpressionError(token.offset, f"expected {expected}, found {found}")


def _number(token: _Token) -> int | float:
    if token.text.isdigit():
        whole = int(token.text)
        if whole > INT_MAX:
            raise ExpressionError(token.offset, f"{token.text} does not fit in 64 bits")
        return whole
    number = float(token.text)
    if number == float("inf"):
        raise ExpressionError(token.offset, f"{token.text} is too large for a double")
    return number


def _string(token: _Token) -> str:
    parts: list[str] = []
    text, position = token.text[1:-1], 0
    while position < len(text):
        if text[position] != "\\":
            parts.append(text[position])
            position += 1
            continue
        character = text[position + 1]
        code = re.match("[0-9a-fA-F]{4}", text[position + 2 :])
        if character in _ESCAPES:
            parts.append(_ESCAPES[character])
            position += 2
        elif character == "u" and code is not None:
            parts.append(chr(int(code.group(), 16)))
            position += 6
        else:
            raise ExpressionError(token.offset + 1 + position, f"unknown escape \\{character} in a string: use \\\\")
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
