"""The case of the proxy: the deliveries of one slot run `Launcher.deliver` as it is deployed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from exactly_once.identity import RunContext, run_path
from exactly_once.launching import Launcher, StartError
from exactly_once.log import Log
from exactly_once.protocol import Protocol
from exactly_once.records import Status

from .explorer import Case, Explorer, Outcome
from .steps import CONTEXT, answered, host_of
from .world import Answer, Call, Lost, Replay, State

PATH = run_path("p", CONTEXT.run_id)

GAPS = (10, 20, 40, 80, 160)
"""Seconds between Cloud Scheduler's deliveries of one slot, with a minimum back-off of 10 s and four doublings."""


class ModelStarter:
    """Workflows: starts executions, and lists those that the listing shows already."""

    def __init__(self, world: Replay) -> None:
        self.world = world

    def find(self, run: RunContext) -> str | None:
        return self._ask("look")

    def start(self, run: RunContext) -> str:
        name = self._ask("start")
        assert name is not None
        return name

    def _ask(self, kind: str) -> str | None:
        try:
            answer = self.world.do(Call(kind))
        except Lost as error:
            raise StartError("lost") from error
        return None if answer is None else str(answer)


@dataclass
class RunCase(Case):
    """Deliveries of one slot. With `gaps`, one after the other as Cloud Scheduler sends them, the last one undisturbed;
    without, all at once."""

    gaps: tuple[int, ...] = ()
    lease: float = 120.0

    def attempt(self, n: int, world: Replay) -> Outcome:
        protocol = Protocol(world, host_of(n))
        launcher = Launcher("p", protocol, ModelStarter(world), self.lease, timedelta(days=90))

        def go() -> Outcome:
            started = launcher.deliver(CONTEXT, Log(lambda line: None))
            return Outcome(200, "" if started.by_us else "duplicate", started.execution)

        return answered(go)

    def outside(self, state: State, n: int, call: Call, arrives: bool) -> tuple[State, Answer]:
        if call.kind == "look":
            return state, Answer(state.outside[0][1] if state.outside else None)
        name = f"execution {n}"
        return (state.seen_outside("started", name) if arrives else state), Answer(name)

    def able(self, state: State) -> list[int]:
        alive = super().able(state)
        return alive[:1] if self.gaps else alive

    def disturbed(self, n: int) -> bool:
        return n < len(self.gaps) if self.gaps else True

    def after_end(self, state: State, n: int) -> State:
        """The gap passes. A write that was given up has landed by then, or never will: an RPC's request lives no longer
        than its deadline of seconds, and every gap is longer."""
        return replace(state, clock=state.clock + self.gaps[n], late=()) if n < len(self.gaps) else state

    def after_write(self, before: State, after: State, n: int, call: Call) -> str | None:
        old = before.doc(PATH)
        if old and old["status"] == "started":
            return "a started run never changes by a delivery"
        return None

    def after_outcome(self, state: State, n: int, outcome: Outcome) -> tuple[State, str | None]:
        if outcome.status != 200:
            return state, None
        doc = state.doc(PATH)
        if doc is None or doc["status"] != "started" or doc["execution"] != outcome.result:
            return state, "success answers the recorded execution"
        if not any(name == outcome.result for _, name in state.outside):
            return state, "a run that is answered with success has its execution"
        if self.gaps:  # answered: Cloud Scheduler sends no more
            state = replace(state, over=frozenset(range(len(state.histories))))
        return state, None

    def at_end(self, state: State, explorer: Explorer) -> str | None:
        doc = state.doc(PATH)
        if self.gaps and not state.outside:
            return "a slot whose last delivery is undisturbed starts its run"
        if self.gaps and (doc is None or doc["status"] != "started"):
            return "a slot whose last delivery is undisturbed is recorded as started"
        return None


SWEEPS = (130, 130)
"""Seconds before each sweep that is looked at: longer than the proxy's lease, since a sweep is tried every minute for
ever."""


class ModelOverlap:
    """Another run is at work until the first sweep."""

    def __init__(self, waits: Status, finds: frozenset[Status], world: Replay) -> None:
        self.finds = finds
        self.waits = waits
        self.world = world

    def obstacle(self, run: RunContext) -> str | None:
        try:
            answer = self.world.do(Call("obstacle"))
        except Lost as error:
            raise StartError("lost") from error
        return None if answer is None else str(answer)

    def waiting(self) -> list[RunContext]:
        """As `RecordedOverlap` finds them by their status."""
        record = Protocol(self.world, host_of(0)).read(PATH)
        taken = record and record.status is Status.IN_PROGRESS and not record.abandoned()
        ready = record and record.status in self.finds and not taken
        return [CONTEXT] if ready else []


@dataclass
class OverlapCase(RunCase):
    """Three deliveries of a slot beside a run that is at work, then sweeps, the last of them undisturbed."""

    waits: Status = Status.QUEUED
    deliveries: int = 3
    finds: frozenset[Status] = frozenset({Status.QUEUED, Status.RELEASED, Status.IN_PROGRESS})
    """What a sweep looks for."""

    def attempt(self, n: int, world: Replay) -> Outcome:
        protocol = Protocol(world, host_of(n))
        overlap = ModelOverlap(self.waits, self.finds, world)
        launcher = Launcher("p", protocol, ModelStarter(world), self.lease, timedelta(days=90), overlap)

        def go() -> Outcome:
            if n >= self.deliveries:
                return Outcome(204, f"swept {len(launcher.sweep(Log(lambda line: None)))}")
            started = launcher.deliver(CONTEXT, Log(lambda line: None))
            return Outcome(200, started.status.value, started.execution)

        return answered(go)

    def outside(self, state: State, n: int, call: Call, arrives: bool) -> tuple[State, Answer]:
        if call.kind == "obstacle":
            return state, Answer("another run is at work" if n < self.deliveries else None)
        return super().outside(state, n, call, arrives)

    def disturbed(self, n: int) -> bool:
        return n not in (self.deliveries - 1, len(self.gaps))

    def after_write(self, before: State, after: State, n: int, call: Call) -> str | None:
        old = before.doc(PATH)
        if old and old["status"] == "skipped":
            return "a skipped slot never changes by a delivery"
        return super().after_write(before, after, n, call)

    def after_outcome(self, state: State, n: int, outcome: Outcome) -> tuple[State, str | None]:
        if outcome.status != 200:
            return state, None
        doc = state.doc(PATH)
        if doc is None or doc["status"] != outcome.code:
            return state, "success answers what is recorded"
        if outcome.code == "started" and not state.outside:
            return state, "a run that is answered as started has its execution"
        return replace(state, over=state.over | frozenset(range(self.deliveries))), None

    def at_end(self, state: State, explorer: Explorer) -> str | None:
        doc = state.doc(PATH)
        ends = {"started"} if self.waits is Status.QUEUED else {"started", "skipped"}
        if doc is None or doc["status"] not in ends:
            return f"a slot that met another run ends {' or '.join(sorted(ends))}"
        if doc["status"] == "started" and not state.outside:
            return "a run that is recorded as started has its execution"
        return None
