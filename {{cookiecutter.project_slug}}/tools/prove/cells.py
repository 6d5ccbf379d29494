"""The cells of the grid: each one fault at one call, named so that it can be tried again by itself.

They are made from the calls that a clean run makes, so that a pipeline's own steps, reads, writes and receivers are
what is disturbed, and none is left out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.emulators.faults import Action, Call, Fault
from tools.settings import Settings

WRITES = ("Commit", "CreateExecution")

LOST = "request lost"
ANSWER_LOST = "answer lost"
TWICE = "twice at once"
AGAIN = "again, afterwards"
LATE = "beyond the time-out"
SLOW = "slow answer"
KILL_BEFORE = "caller killed before"
KILL_AFTER = "caller killed after"
KILL_CALLEE = "callee killed at work"
ZOMBIE = "caller wakes after its lease"

COLUMNS = (LOST, ANSWER_LOST, TWICE, AGAIN, LATE, SLOW, KILL_BEFORE, KILL_AFTER, KILL_CALLEE, ZOMBIE)
"""The grid's columns, left to right."""

_ACTIONS = {
    LOST: Action.LOSE_REQUEST,
    ANSWER_LOST: Action.LOSE_ANSWER,
    TWICE: Action.TWICE,
    AGAIN: Action.AGAIN,
    KILL_BEFORE: Action.KILL_BEFORE,
    KILL_AFTER: Action.KILL_AFTER,
    KILL_CALLEE: Action.KILL_CALLEE,
    ZOMBIE: Action.FREEZE,
}

RPC_SECONDS = 30.0
"""Longer than any time-out that proxy and steps give to an RPC."""

RECEIVER_SECONDS = 60.0
"""Longer than a body's own time-out for an outside call should be, shorter than its lease."""


@dataclass(frozen=True)
class Hop:
    """One call of the pipeline: the nth of its kind. A row of the grid."""

    caller: str
    callee: str
    method: str
    nth: int = 1
    of: int = 1

    @property
    def outside(self) -> bool:
        """Whether it is a call of a receiver."""
        return self.caller not in ("scheduler", "workflows") and self.callee not in ("firestore", "workflows")

    @property
    def ends(self) -> str:
        return f"{self.caller} -> {self.callee}"

    @property
    def call(self) -> str:
        return f"{self.method} {self.nth} of {self.of}" if self.of > 1 else self.method

    @property
    def name(self) -> str:
        return f"{self.ends}  {self.call}"


@dataclass(frozen=True)
class Cell:
    """One fault at one hop."""

    hop: Hop
    column: str
    fault: Fault

    @property
    def id(self) -> str:
        """How `--cell` names it."""
        words = (self.hop.caller, self.hop.callee, self.hop.method, str(self.hop.nth), self.column)
        return "/".join(word.replace(",", "").replace(" ", "-") for word in words)


@dataclass(frozen=True)
class Trouble:
    """What is tried in one go: one cell of the grid, or several at once (`--random`)."""

    cells: tuple[Cell, ...]

    @property
    def id(self) -> str:
        return "+".join(cell.id for cell in self.cells)


def cells(calls: Sequence[Call], settings: Settings) -> list[Cell]:
    """Every cell, in the order in which a clean run makes the calls."""
    return [Cell(hop, column, _fault(hop, column, settings)) for hop in hops(calls) for column in columns(hop)]


def hops(calls: Sequence[Call]) -> list[Hop]:
    """The calls to disturb. Of a step with many items: the first call of a kind and, of writes, the last."""
    counts = Counter((call.caller, call.callee, call.method) for call in calls)
    served = Counter(call.callee for call in calls if call.caller == "workflows")
    found = []
    for (caller, callee, method), count in counts.items():
        fan_out = max(served[caller], served[callee] if caller == "workflows" else 0) > 1
        if not fan_out:
            chosen = list(range(1, count + 1))
        elif method in WRITES or callee not in ("firestore", "workflows"):
            chosen = sorted({1, count})
        else:
            chosen = [1]
        found += [Hop(caller, callee, method, nth, count) for nth in chosen]
    return found


def columns(hop: Hop) -> list[str]:
    """Which faults make sense at a hop. Scheduler and Workflows are Google's: they are not killed."""
    found = [LOST, ANSWER_LOST, TWICE, AGAIN, LATE]
    if hop.caller == "workflows":
        found.append(KILL_CALLEE)
    elif hop.caller != "scheduler":
        found += [KILL_BEFORE, KILL_AFTER]
        if hop.outside:
            found.append(SLOW)
        if hop.method in WRITES or hop.outside:
            found.append(ZOMBIE)
    return found


def _fault(hop: Hop, column: str, settings: Settings) -> Fault:
    at = (hop.caller, hop.callee, hop.method, hop.nth)
    if column == ZOMBIE:
        return Fault(Action.FREEZE, *at, seconds=_lease(hop.caller, settings) + 60)
    if column == SLOW:
        return Fault(Action.DELAY_ANSWER, *at, seconds=RECEIVER_SECONDS)
    if column != LATE:
        return Fault(_ACTIONS[column], *at)
    if hop.caller == "scheduler":
        return Fault(Action.DELAY, *at, seconds=settings.attempt_deadline + 10)
    if hop.caller == "workflows":
        return Fault(Action.DELAY, *at, seconds=settings.steps[hop.callee].timeout + 60)
    if hop.callee in ("firestore", "workflows"):
        return Fault(Action.DELAY, *at, seconds=RPC_SECONDS)
    return Fault(Action.LATE, *at, seconds=RECEIVER_SECONDS)


def _lease(caller: str, settings: Settings) -> float:
    return settings.proxy_lease if caller == "proxy" else settings.steps[caller].lease


def combinations(found: Sequence[Cell], count: int, seed: int, most: int = 3) -> list[Trouble]:
    """`count` random combinations of two to `most` cells; equal for equal seeds."""
    chance = random.Random(seed)
    return [Trouble(tuple(chance.sample(found, chance.randint(2, min(most, len(found)))))) for _ in range(count)]


def named(ids: Iterable[str], found: Sequence[Cell]) -> list[Trouble]:
    """The troubles with these ids (cells joined by +). Raises KeyError with the part that is not known."""
    by_id = {cell.id: cell for cell in found}
    return [Trouble(tuple(by_id[part] for part in text.split("+"))) for text in ids]
