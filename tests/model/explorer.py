"""Every order of events, once each: a depth-first walk over the states of the world.

Two orders that lead to the same state share what comes after it, so the walk visits states, and counts orders by
adding up: the number of interleavings from a state is the sum over what may happen next. The graph has no cycle: every
event uses something up (a call is answered, a fault or a tick is spent).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .world import Answer, Call, Pause, Replay, State, carried_out


class Violation(AssertionError):  # noqa: N818 - what it is
    """A promise is broken; the story is the events in order."""

    def __init__(self, promise: str, story: list[str]) -> None:
        super().__init__(promise + "\n  " + "\n  ".join(story))
        self.promise = promise
        self.story = story


@dataclass(frozen=True)
class Outcome:
    """An attempt came to its end: what it answered."""

    status: int
    code: str = ""
    result: Any = None


class Case:
    """What is explored: the code of each attempt, the world outside, and the promises.

    A promise that is broken is returned as a sentence; None is as it should be.
    """

    def attempt(self, n: int, world: Replay) -> Outcome:
        """Run the real code as attempt n (from 0) against `world`, its store."""
        raise NotImplementedError

    def outside(self, state: State, n: int, call: Call, arrives: bool) -> tuple[State, Answer]:
        """An outside call; with `arrives` false its request was lost."""
        raise NotImplementedError

    def able(self, state: State) -> list[int]:
        """The attempts that may do their next call now: any that is not over, unless the case has an order."""
        return [n for n in range(len(state.histories)) if n not in state.over]

    def disturbed(self, n: int) -> bool:
        """Whether faults may happen to attempt n."""
        return True

    def after_tick(self, state: State) -> State:
        """What else happens when so much time passes that a lease runs out."""
        return state

    def after_end(self, state: State, n: int) -> State:
        """What else happens when attempt n has answered or died."""
        return state

    def after_write(self, before: State, after: State, n: int, call: Call) -> str | None:
        return None

    def after_outside(self, state: State) -> str | None:
        return None

    def after_outcome(self, state: State, n: int, outcome: Outcome) -> tuple[State, str | None]:
        return state, None

    def at_end(self, state: State, explorer: Explorer) -> str | None:
        return None


Step = tuple[str, State]
"""What happened, in words, and the state after it."""

LEASE_OVER = 1000
"""Seconds that pass when a lease runs out: more than any lease tried here."""


class Explorer:
    """Walks through every order of events of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._counts: dict[State, int] = {}
        self._next: dict[tuple[int, tuple[Answer, ...]], Call | Outcome] = {}

    @property
    def states(self) -> int:
        return len(self._counts)

    def explore(self, start: State) -> int:
        """The number of interleavings. Raises Violation."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 5_000))  # a walk is as deep as a story is long
        try:
            return self._walk(start, [])
        finally:
            sys.setrecursionlimit(limit)

    def next_of(self, n: int, history: tuple[Answer, ...]) -> Call | Outcome:
        """What attempt n does after these answers: its next call, or its end."""
        key = (n, history)
        if key not in self._next:
            try:
                self._next[key] = self.case.attempt(n, Replay(history))
            except Pause as pause:
                self._next[key] = pause.call
        return self._next[key]

    def alone(self, state: State) -> tuple[State, Outcome]:
        """One more attempt, undisturbed."""
        n = len(state.histories)
        state = replace(state, histories=(*state.histories, ()), faults=0)
        while isinstance(call := self.next_of(n, state.histories[n]), Call):
            state, answer = self._apply(state, n, call, [])
            state = state.answered(n, answer)
        return state, call

    def _walk(self, state: State, story: list[str]) -> int:
        known = self._counts.get(state)
        if known is not None:
            return known
        total = 0
        for event, after in self._events(state, story):
            story.append(event)
            total += self._walk(after, story)
            story.pop()
        if total == 0:
            self._hold(self.case.at_end(state, self), story)
            total = 1
        self._counts[state] = total
        return total

    @staticmethod
    def _hold(broken: str | None, story: list[str], *last: str) -> None:
        if broken:
            raise Violation(broken, [*story, *last])

    def _events(self, state: State, story: list[str]) -> Iterator[Step]:
        for n in self.case.able(state):
            yield from self._call_events(state, n, story)
        if state.ticks and state.docs and len(state.over) < len(state.histories):
            later = replace(state, clock=state.clock + LEASE_OVER, ticks=state.ticks - 1)
            yield "the lease runs out", self.case.after_tick(later)
        for index, (n, call) in enumerate(state.late):
            rest = replace(state, late=state.late[:index] + state.late[index + 1 :])
            after, answer = self._apply(rest, n, call, story)
            yield f"attempt {n + 1}'s late {_words(call)} lands{_error(answer)}", after

    def _call_events(self, state: State, n: int, story: list[str]) -> Iterator[Step]:
        call = self.next_of(n, state.histories[n])
        assert isinstance(call, Call), "an attempt that has ended is over"
        name = f"attempt {n + 1}: {_words(call)}"
        applied, answer = self._apply(state, n, call, story)
        yield self._answered(name + _error(answer), applied, answer, n, story)
        if not state.faults or not self.case.disturbed(n):
            return
        lost = Answer(error="Lost" if call.outside else "Uncertain" if call.writes else "Unreachable")
        missed = replace(state, faults=state.faults - 1)
        applied = replace(applied, faults=state.faults - 1)
        yield name + ": dies before it", self._ended(missed, n)
        yield name + ": dies after it", self._ended(applied, n)
        if call.outside:
            missed = self.case.outside(missed, n, call, arrives=False)[0]
            self._hold(self.case.after_outside(missed), story, name + " is lost")
        yield self._answered(name + " is lost", missed, lost, n, story)
        if not answer.error and call.kind not in ("read", "tx_read"):
            yield self._answered(name + ", the answer is lost", applied, lost, n, story)
        if call.writes:
            late = replace(missed, late=(*missed.late, (n, call)))
            yield self._answered(name + " is lost, for now", late, lost, n, story)

    def _answered(self, event: str, state: State, answer: Answer, n: int, story: list[str]) -> Step:
        state = state.answered(n, answer)
        outcome = self.next_of(n, state.histories[n])
        if isinstance(outcome, Outcome):
            event += f" => {outcome.status} {outcome.code}".rstrip()
            state, broken = self.case.after_outcome(state, n, outcome)
            self._hold(broken, story, event)
            state = self._ended(state, n)
        return event, state

    def _ended(self, state: State, n: int) -> State:
        return self.case.after_end(state.ended(n), n)

    def _apply(self, state: State, n: int, call: Call, story: list[str]) -> tuple[State, Answer]:
        name = f"attempt {n + 1}: {_words(call)}"
        if call.outside:
            after, answer = self.case.outside(state, n, call, arrives=True)
            self._hold(self.case.after_outside(after), story, name)
            return after, answer
        after, answer = carried_out(state, call)
        if call.writes and not answer.error:
            self._hold(self.case.after_write(state, after, n, call), story, name)
        return after, answer


def _words(call: Call) -> str:
    status = dict(call.fields).get("status", "")
    return " ".join(word for word in (call.kind, call.effect, status) if word)


def _error(answer: Answer) -> str:
    return f" -> {answer.error}" if answer.error else ""
