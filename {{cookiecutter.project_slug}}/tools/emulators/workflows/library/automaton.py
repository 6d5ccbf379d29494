"""Runs a regular expression as a non-deterministic automaton: leftmost matches, and the longest of those."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import value_error

_SIZE_LIMIT = 50_000  # instructions

Test = Callable[[str], bool]
CHAR, SPLIT, ASSERT, MATCH = range(4)


class Program:
    """Instructions: what to test or where to fork, and where to go on. The first one is the end of a match."""

    def __init__(self) -> None:
        self.code: list[tuple[int, object, int]] = [(MATCH, None, 0)]

    def add(self, kind: int, what: object, following: int) -> int:
        if len(self.code) >= _SIZE_LIMIT:
            raise value_error("the regular expression is too large")
        self.code.append((kind, what, following))
        return len(self.code) - 1


class Regex:
    """A compiled expression."""

    def __init__(self, program: Program, start: int) -> None:
        self._code = program.code
        self._start = start

    def search(self, text: str, position: int) -> tuple[int, int] | None:
        """Start and end of the leftmost, longest match from `position` on."""
        for start in range(position, len(text) + 1):
            end = self._match_at(text, start)
            if end is not None:
                return start, end
        return None

    def find_all(self, text: str) -> list[tuple[int, int]]:
        """Every match, without overlaps; an empty one right behind another does not count."""
        matches: list[tuple[int, int]] = []
        position, last = 0, -1
        while position <= len(text) and (found := self.search(text, position)) is not None:
            start, end = found
            if start == end == last:
                position = start + 1
                continue
            matches.append(found)
            position, last = (end if end > start else end + 1), end
        return matches

    def _match_at(self, text: str, start: int) -> int | None:
        longest = None
        states = self._closure([self._start], text, start)
        position = start
        while states:
            if 0 in states:
                longest = position
            if position >= len(text):
                break
            character = text[position]
            following = []
            for state in states:
                kind, test, target = self._code[state]
                if kind == CHAR and test(character):  # type: ignore[operator]
                    following.append(target)
            position += 1
            states = self._closure(following, text, position)
        return longest

    def _closure(self, states: list[int], text: str, position: int) -> set[int]:
        seen: set[int] = set()
        waiting = states
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, what, target = self._code[state]
            if kind == SPLIT:
                waiting += [target, what]  # type: ignore[list-item]
            elif kind == ASSERT and what(text, position):  # type: ignore[operator]
                waiting.append(target)
        return seen
