"""Regular expressions of RE2's syntax.

Matches are leftmost, and of those that start together the longest, as the library documents. What RE2 does not have
(look-around, back-references, possessive repetition) is a ValueError. No expression takes exponential time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from ..errors import value_error
from .automaton import ASSERT, CHAR, SPLIT, Program, Regex, Test

_REPEAT_LIMIT = 1000  # as RE2's

Build = Callable[[Program, int], int]
"""Adds the instructions of a part of the expression that goes on at `following`, and gives where it starts."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Regex:
    """The expression of a pattern. Raises ValueError for what RE2 does not accept."""
    build = _Parser(pattern).parse()
    program = Program()
    return Regex(program, build(program, 0))


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _boundary(text: str, position: int) -> bool:
    before = position > 0 and _is_word(text[position - 1])
    after = position < len(text) and _is_word(text[position])
    return before != after


def _line_start(text: str, position: int) -> bool:
    return position == 0 or text[position - 1] == "\n"


def _line_end(text: str, position: int) -> bool:
    return position == len(text) or text[position] == "\n"


_ASSERTIONS: dict[str, Callable[[str, int], bool]] = {
    "A": lambda text, position: position == 0,
    "z": lambda text, position: position == len(text),
    "b": _boundary,
    "B": lambda text, position: not _boundary(text, position),
}
_CLASSES: dict[str, Test] = {
    "d": lambda c: "0" <= c <= "9",
    "s": lambda c: c in "\t\n\f\r ",
    "w": _is_word,
}
_POSIX: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": lambda c: "0" <= c <= "9",
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _is_word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


_QUOTED = re.compile(r"\\(?:Q(.*?)(?:\\E|\Z)|.)", re.DOTALL)


def _unquoted(found: re.Match[str]) -> str:
    """``\\Q...\\E`` with every special character escaped; any other escape as it is."""
    quoted = found.group(1)
    if quoted is None:
        return found.group()
    return "".join(c if c.isalnum() or not c.isascii() else f"\\{c}" for c in quoted)


def _not(test: Test) -> Test:
    return lambda c: not test(c)


def _any(tests: list[Test]) -> Test:
    return lambda c: any(test(c) for test in tests)


def _fold(test: Test) -> Test:
    return lambda c: test(c) or test(c.lower()) or test(c.upper())


def _between(first: str, last: str) -> Test:
    return lambda c: len(c) == 1 and first <= c <= last


def _empty(program: Program, following: int) -> int:
    return following


class _Parser:
    """Recursive descent over the pattern; each part becomes a `Build`."""

    def __init__(self, pattern: str) -> None:
        self._pattern = _QUOTED.sub(_unquoted, pattern)
        self._at = 0
        self._flags = frozenset[str]()
        self._names: set[str] = set()

    def parse(self) -> Build:
        build = self._alternatives()
        if self._at < len(self._pattern):
            raise self._error("an unexpected )")
        return build

    def _alternatives(self) -> Build:
        flags = self._flags
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self._flags = flags

        def build(program: Program, following: int) -> int:
            start = options[-1](program, following)
            for option in reversed(options[:-1]):
                start = program.add(SPLIT, start, option(program, following))
            return start

        return build

    def _sequence(self) -> Build:
        parts: list[Build] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._repeated())

        def build(program: Program, following: int) -> int:
            for part in reversed(parts):
                following = part(program, following)
            return following

        return build

    def _repeated(self) -> Build:
        begin = self._at
        part = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return part
        if self._pattern[begin] in "*+?":
            raise self._error("nothing to repeat")
        self._take("?")  # lazy or not, the longest match is the same
        if self._at < len(self._pattern) and (self._pattern[self._at] in "*+?" or self._bounds() is not None):
            raise self._error("a repetition of a repetition: put the inner one in parentheses")
        return _repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often the part before is repeated; None where no repetition stands. A { that is none is itself."""
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(symbol):
                return bounds
        end = self._pattern.find("}", self._at)
        if not self._pattern.startswith("{", self._at) or end < 0:
            return None
        least, comma, most = self._pattern[self._at + 1 : end].partition(",")
        if not (least.isdecimal() and least.isascii()) or not (most == "" or (most.isdecimal() and most.isascii())):
            return None
        self._at = end + 1
        first = int(least)
        last = int(most) if most else (None if comma else first)
        if first > _REPEAT_LIMIT or (last is not None and (last > _REPEAT_LIMIT or last < first)):
            raise self._error(f"a repetition that is not from 0 to {_REPEAT_LIMIT} in order")
        return first, last

    def _atom(self) -> Build:
        character = self._pattern[self._at]
        self._at += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return self._single(self._class())
            case ".":
                return self._single((lambda c: True) if "s" in self._flags else (lambda c: c != "\n"))
            case "^":
                return self._assertion(_line_start if "m" in self._flags else _ASSERTIONS["A"])
            case "$":
                return self._assertion(_line_end if "m" in self._flags else _ASSERTIONS["z"])
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self._error("nothing to repeat")
            case _:
                return self._single(lambda c: c == character)

    def _single(self, test: Test) -> Build:
        used = _fold(test) if "i" in self._flags else test
        return lambda program, following: program.add(CHAR, used, following)

    def _assertion(self, holds: Callable[[str, int], bool]) -> Build:
        return lambda program, following: program.add(ASSERT, holds, following)

    def _group(self) -> Build:
        outer = self._flags
        if self._take("?"):
            if self._take("P<") or (not self._ahead("<=") and not self._ahead("<!") and self._take("<")):
                self._name()
            elif not self._set_flags():
                return _empty  # (?i): for the rest of the group around
        build = self._alternatives()
        if not self._take(")"):
            raise self._error("a missing )")
        self._flags = outer
        return build

    def _name(self) -> None:
        end = self._pattern.find(">", self._at)
        name = self._pattern[self._at : end]
        if end < 0 or not name.isidentifier() or name in self._names:
            raise self._error("a wrong name of a group")
        self._names.add(name)
        self._at = end + 1

    def _set_flags(self) -> bool:
        """Read flags; True for a group with flags of its own, False where they hold for the rest around."""
        on, flags = True, set(self._flags)
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            self._at += 1
            if character in "imsU":
                (flags.add if on else flags.discard)(character)
            elif character == "-" and on:
                on = False
            elif character in ":)":
                self._flags = frozenset(flags)
                return character == ":"
            else:
                break
        raise self._error("a group that RE2 does not have, such as look-around")

    def _escape(self) -> Build:
        character = self._pattern[self._at : self._at + 1]
        if character and character in _ASSERTIONS:
            self._at += 1
            return self._assertion(_ASSERTIONS[character])
        return self._single(self._escaped_test())

    def _escaped_test(self) -> Test:
        """A class such as \\d or \\pL, or one character."""
        character = self._pattern[self._at : self._at + 1]
        if character and character.lower() in _CLASSES:
            self._at += 1
            test = _CLASSES[character.lower()]
            return test if character.islower() else _not(test)
        if character in ("p", "P"):
            self._at += 1
            return self._property(negated=character == "P")
        wanted = self._escaped_character()
        return lambda c: c == wanted

    def _escaped_character(self) -> str:
        character = self._pattern[self._at : self._at + 1]
        self._at += 1
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0":
            digits = character
            while len(digits) < 3 and self._ahead_in("01234567"):
                digits += self._pattern[self._at]
                self._at += 1
            return chr(int(digits, 8))
        if character and not character.isalnum() and character.isascii():
            return character
        raise self._error(f"\\{character}, which RE2 does not have here")

    def _hexadecimal(self) -> str:
        if self._take("{"):
            end = self._pattern.find("}", self._at)
            digits, after = self._pattern[self._at : end], end + 1
        else:
            end = self._at + 2
            digits, after = self._pattern[self._at : end], end
        try:
            character = chr(int(digits, 16))
        except ValueError as error:
            raise self._error("a wrong \\x") from error
        self._at = after
        return character

    def _property(self, *, negated: bool) -> Test:
        if self._take("{"):
            end = self._pattern.find("}", self._at)
            name, after = self._pattern[self._at : end], end + 1
            if name.startswith("^"):
                name, negated = name[1:], not negated
        else:
            name, after = self._pattern[self._at : self._at + 1], self._at + 1
        if not 1 <= len(name) <= 2 or name[0] not in "CLMNPSZ":
            raise self._error(f"the property {name!r}: only general categories such as L or Nd are emulated")
        self._at = after

        def test(c: str) -> bool:
            return unicodedata.category(c[0]).startswith(name)

        return _not(test) if negated else test

    def _class(self) -> Test:
        negated = self._take("^")
        tests: list[Test] = []
        first = True
        while first or not self._ahead("]"):
            if self._at >= len(self._pattern):
                raise self._error("a missing ]")
            first = False
            tests.append(self._class_item())
        self._at += 1
        test = _any(tests)
        if not negated:
            return test
        folded = _fold(test) if "i" in self._flags else test
        return _not(folded)

    def _class_item(self) -> Test:
        if self._ahead("[:"):
            end = self._pattern.find(":]", self._at)
            name = self._pattern[self._at + 2 : end]
            if end < 0 or name.removeprefix("^") not in _POSIX:
                raise self._error("an unknown [:class:]")
            self._at = end + 2
            test = _POSIX[name.removeprefix("^")]
            return _not(test) if name.startswith("^") else test
        first = self._class_character()
        if not isinstance(first, str):
            return first
        if self._ahead("-") and not self._ahead("-]"):
            self._at += 1
            last = self._class_character()
            if not isinstance(last, str) or last < first:
                raise self._error("a wrong range in [...]")
            return _between(first, last)
        return _between(first, first)

    def _class_character(self) -> str | Test:
        if self._at >= len(self._pattern):
            raise self._error("a missing ]")
        character = self._pattern[self._at]
        self._at += 1
        if character != "\\":
            return character
        following = self._pattern[self._at : self._at + 1]
        if following and following.lower() in (*_CLASSES, "p"):
            return self._escaped_test()
        return self._escaped_character()

    def _take(self, text: str) -> bool:
        if self._ahead(text):
            self._at += len(text)
            return True
        return False

    def _ahead(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _ahead_in(self, characters: str) -> bool:
        return self._at < len(self._pattern) and self._pattern[self._at] in characters

    def _error(self, what: str) -> Exception:
        return value_error(f"invalid regular expression {self._pattern!r}: {what} at {self._at}")


def _repeat(part: Build, least: int, most: int | None) -> Build:
    def build(program: Program, following: int) -> int:
        if most is None:
            split = program.add(SPLIT, following, following)
            program.code[split] = (SPLIT, following, part(program, split))
            following = split
        else:
            after = following
            for _ in range(most - least):
                following = program.add(SPLIT, after, part(program, following))
        for _ in range(least):
            following = part(program, following)
        return following

    return build
