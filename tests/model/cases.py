"""Every case by name, with how much may go wrong in it."""

from __future__ import annotations

from dataclasses import dataclass

from exactly_once.errors import Permanent, Retry
from exactly_once.records import Status

from .explorer import Case, Explorer
from .runs import GAPS, SWEEPS, OverlapCase, RunCase
from .steps import ExternalCase, ResolvedCase, TransactionalCase, effect, extended_effect, marked_effect, refusing
from .world import State

MEETING = (*GAPS[:2], *SWEEPS)


@dataclass(frozen=True)
class Setup:
    """A case, its attempts, and the faults and leases that may run out among them."""

    case: Case
    attempts: int = 2
    faults: int = 2
    ticks: int = 2

    def explore(self) -> tuple[int, int]:
        """Interleavings and states. Raises Violation."""
        explorer = Explorer(self.case)
        start = State(histories=((),) * self.attempts, faults=self.faults, ticks=self.ticks)
        return explorer.explore(start), explorer.states


CASES: dict[str, Setup] = {
    "transactional": Setup(TransactionalCase()),
    "transactional, refused at first": Setup(TransactionalCase(fails=True)),
    "hold": Setup(ExternalCase("hold")),
    "retry": Setup(ExternalCase("retry")),
    "hold, refused at first: Retry": Setup(ExternalCase("hold", refusing(Retry)), faults=1),
    "retry, refused at first: Permanent": Setup(ExternalCase("retry", refusing(Permanent))),
    "hold, the start is marked": Setup(ExternalCase("hold", marked_effect, marks_start=True), faults=1),
    "hold, the lease is extended": Setup(ExternalCase("hold", extended_effect), faults=1),
    "hold, verify": Setup(ExternalCase("hold", effect, verify=True)),
    "hold, verify, a lease shorter than the attempt": Setup(ExternalCase("hold", effect, verify=True, lease=60)),
    "hold, an operator says redo": Setup(ResolvedCase("hold", decision="redo"), attempts=3, faults=1),
    "deliveries at once": Setup(RunCase(), faults=1),
    "deliveries in turn": Setup(RunCase(GAPS), attempts=len(GAPS) + 1, faults=len(GAPS), ticks=0),
    "a slot is queued, then swept": Setup(OverlapCase(MEETING), attempts=5, faults=3, ticks=0),
    "a slot is skipped": Setup(OverlapCase(MEETING, waits=Status.SKIPPED), attempts=5, faults=3, ticks=0),
}
"""Two attempts: exhaustive within the faults. The deliveries in turn: as many as Cloud Scheduler sends."""

LARGE: dict[str, Setup] = {
    "three attempts: transactional": Setup(TransactionalCase(), attempts=3),
    "three attempts: hold": Setup(ExternalCase("hold"), attempts=3, faults=1),
    "three attempts: retry": Setup(ExternalCase("retry"), attempts=3, faults=1),
    "three faults: hold": Setup(ExternalCase("hold"), faults=3, ticks=3),
    "three faults: retry": Setup(ExternalCase("retry"), faults=3),
    "two faults: hold, the start is marked": Setup(ExternalCase("hold", marked_effect, marks_start=True)),
    "hold, an operator says done": Setup(ResolvedCase("hold", decision="done"), attempts=3, faults=1),
    "retry, an operator says redo": Setup(ResolvedCase("retry", decision="redo"), attempts=3, faults=1),
    "three deliveries at once": Setup(RunCase(), attempts=3, faults=1, ticks=1),
}
"""Three attempts, bounded; more faults. Takes a minute or two."""
