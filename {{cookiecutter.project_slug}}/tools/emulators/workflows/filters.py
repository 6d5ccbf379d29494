"""The `filter` (AIP-160) and `orderBy` (AIP-132) of list requests.

Grammar: comparisons `field op value` joined by AND, OR, NOT, `-` and parentheses; OR binds tighter than AND, and a bare
space means AND. Operators: `=` `!=` `<` `<=` `>` `>=` and `:` (has). Values are quoted (either quote) or bare; `*` at
the end or start of a string value of `=` and `!=` matches anything. A field is known by its camelCase or snake_case
name. A label is `labels.KEY="VALUE"`, `label.KEY="VALUE"`, or `labels:KEY` for its presence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from .resources import Resource, seconds_of
from .status import invalid

Kind = str
"""What a field's values are: "string", "enum", "time", "duration", "number", "boolean", "map", or "list"."""

Fields = Mapping[str, tuple[Kind, Callable[[Resource], Any]]]
"""Field name -> its kind, and how to read it from a resource."""

Test = Callable[[Resource], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<op><=|>=|!=|=|<|>|:)|(?P<paren>[()])"""
    r"""|(?P<minus>-(?=[A-Za-z(]))|(?P<word>[^\s"'()=<>!:]+(?:(?<=\d):[\d:.Z+-]+)?))"""
)


def field(name: str, kind: Kind = "string") -> tuple[Kind, Callable[[Resource], Any]]:
    """A field that is a key of the resource."""
    return kind, lambda resource: resource.get(name)


def compile_filter(text: str | None, fields: Fields) -> Test:
    """The test that `text` stands for; no text lets all pass. Raises ApiError INVALID_ARGUMENT."""
    if not text or not text.strip():
        return lambda resource: True
    return _Parser(text, fields).parse()


def sorted_by(items: Sequence[Resource], text: str | None, fields: Fields, default: str) -> list[Resource]:
    """`items` in the order of `orderBy`: comma-separated fields, each with `asc` or `desc` at will.

    Items without a value come last in ascending order. Raises ApiError INVALID_ARGUMENT.
    """
    ordered = list(items)
    for part in reversed((text or "").strip().split(",") if (text or "").strip() else default.split(",")):
        words = part.split()
        if not 1 <= len(words) <= 2 or (len(words) == 2 and words[1].lower() not in ("asc", "desc")):
            raise invalid(f"orderBy {text!r}: give fields with 'asc' or 'desc', separated by commas")
        kind, read = _known(words[0], fields, "orderBy")
        if kind in ("map", "list"):
            raise invalid(f"orderBy: cannot order by {words[0]}")
        ordered.sort(key=_sort_key(kind, read), reverse=len(words) == 2 and words[1].lower() == "desc")
    return ordered


def _sort_key(kind: Kind, read: Callable[[Resource], Any]) -> Callable[[Resource], tuple[bool, Any]]:
    def key(resource: Resource) -> tuple[bool, Any]:
        value = _comparable(kind, read(resource))
        return (value is None, 0 if value is None else value)

    return key


def _known(name: str, fields: Fields, where: str) -> tuple[Kind, Callable[[Resource], Any]]:
    plain = name.replace("_", "").lower()
    for known, found in fields.items():
        if known.lower() == plain:
            return found
    raise invalid(f"{where}: unknown field {name!r}; known are {', '.join(fields)}")


def _comparable(kind: Kind, value: Any) -> Any:
    """The value on a scale on which it can be compared. Raises ValueError."""
    if value is None or kind in ("string", "enum", "map", "list"):
        return value
    if kind == "time":
        return seconds_of(value)
    if kind == "duration":
        return float(str(value).removesuffix("s"))
    if kind == "boolean":
        return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
    return float(value)


class _Parser:
    def __init__(self, text: str, fields: Fields) -> None:
        self._text = text
        self._fields = fields
        self._tokens = self._split(text)
        self._at = 0

    def parse(self) -> Test:
        test = self._conjunction()
        if self._at < len(self._tokens):
            raise self._wrong(f"unexpected {self._tokens[self._at][1]!r}")
        return test

    def _wrong(self, why: str) -> Exception:
        return invalid(f"filter {self._text!r}: {why}")

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens, at = [], 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise self._wrong(f"cannot read {text[at:]!r}")
            tokens.append((found.lastgroup, found.group(found.lastgroup)))
            at = found.end()
        return tokens

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _conjunction(self) -> Test:
        tests = [self._disjunction()]
        while self._peek() != ("end", "") and self._peek() != ("paren", ")"):
            if self._peek() == ("word", "AND"):
                self._take()
            tests.append(self._disjunction())
        return tests[0] if len(tests) == 1 else lambda resource: all(test(resource) for test in tests)

    def _disjunction(self) -> Test:
        tests = [self._term()]
        while self._peek() == ("word", "OR"):
            self._take()
            tests.append(self._term())
        return tests[0] if len(tests) == 1 else lambda resource: any(test(resource) for test in tests)

    def _term(self) -> Test:
        if self._peek() in (("word", "NOT"), ("minus", "-")):
            self._take()
            inner = self._term()
            return lambda resource: not inner(resource)
        if self._peek() == ("paren", "("):
            self._take()
            inner = self._conjunction()
            if self._take() != ("paren", ")"):
                raise self._wrong("a ')' is missing")
            return inner
        return self._comparison()

    def _comparison(self) -> Test:
        kind, name = self._take()
        if kind != "word":
            raise self._wrong("expected a field" if kind == "end" else f"expected a field, not {name!r}")
        op_kind, op = self._take()
        if op_kind != "op":
            raise self._wrong(f"expected an operator after {name!r}")
        value_kind, value = self._take()
        if value_kind == "minus":
            value_kind, value = "word", "-" + self._take()[1]
        if value_kind not in ("string", "word"):
            raise self._wrong(f"expected a value after '{name} {op}'")
        if value_kind == "string":
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        return self._test(name, op, value)

    def _test(self, name: str, op: str, value: str) -> Test:
        head, _, key = name.partition(".")
        kind, read = _known(head, self._fields, "filter")
        if kind == "map":
            return self._map_test(name, key, op, value, read)
        if key:
            raise self._wrong(f"{head} has no field {key!r}")
        if kind == "list":
            return self._list_test(name, op, value, read)
        try:
            wanted = _comparable(kind, value)
        except (ValueError, KeyError):
            raise self._wrong(f"{value!r} is not a {kind}") from None
        compare = self._operator(kind, op)
        return lambda resource: compare(_comparable(kind, read(resource)), wanted)

    def _map_test(self, name: str, key: str, op: str, value: str, read: Callable[[Resource], Any]) -> Test:
        if not key:
            if op != ":":
                raise self._wrong(f"{name} is a map: write {name}.KEY {op} VALUE, or {name}:KEY")
            return lambda resource: (value == "*" and bool(read(resource))) or value in (read(resource) or {})
        if op == ":" and value == "*":
            return lambda resource: key in (read(resource) or {})
        compare = self._operator("string", op)
        return lambda resource: compare((read(resource) or {}).get(key), value)

    def _list_test(self, name: str, op: str, value: str, read: Callable[[Resource], Any]) -> Test:
        if op not in (":", "=", "!="):
            raise self._wrong(f"{name} {op}: only ':', '=' and '!=' are possible")
        return lambda resource: (value in (read(resource) or ())) != (op == "!=")

    def _operator(self, kind: Kind, op: str) -> Callable[[Any, Any], bool]:
        if op in (":", "=", "!=") and kind in ("string", "enum"):
            return lambda found, wanted: (found is not None and _like(found, wanted)) != (op == "!=")
        if op in (":", "=", "!="):
            return lambda found, wanted: (found == wanted) != (op == "!=")
        if kind in ("enum", "boolean"):
            raise self._wrong(f"'{op}' does not fit a value of {kind}")
        order: dict[str, Callable[[Any, Any], bool]] = {
            "<": lambda found, wanted: found < wanted,
            "<=": lambda found, wanted: found <= wanted,
            ">": lambda found, wanted: found > wanted,
            ">=": lambda found, wanted: found >= wanted,
        }
        return lambda found, wanted: found is not None and order[op](found, wanted)


def _like(found: str, wanted: str) -> bool:
    if "*" not in wanted:
        return found == wanted
    return fnmatchcase(found, re.sub(r"([\[?])", r"[\1]", wanted))
