"""What a slot does while another run is at work, by the records and the executions: ON_OVERLAP=skip | queue.

A slot that may not start is claimed all the same, and its record says `skipped` or `queued`: no slot is without a
record. What is queued is started by a sweep (`Launcher.sweep`), which also finds the slot whose delivery died between
any two of its writes: that record is `released`, or in progress with its lease run out. Only slots wait; a run by hand
never does, but slots wait for it.
"""

from __future__ import annotations

import json
from typing import Protocol as Interface

from .identity import RunContext, parse_instant
from .lookups import Lookups
from .records import Record, Status

NEIGHBOURS = 3
"""Runs with the latest slots whose executions are asked for by name: a listing may not show yet what was started just
now."""


class Watch(Interface):
    """What is at work. `exactly_once.starting` has the one on Workflows."""

    def at_work(self) -> str | None:
        """The name of an execution that has not ended, if the listing shows one. Raises StartError."""
        ...

    def ended(self, execution: str) -> bool:
        """Whether one execution has ended, or is not there any more. Raises StartError."""
        ...


class RecordedOverlap:
    """`launching.Overlap`. `waits` is `queued` or `skipped`."""

    def __init__(self, waits: Status, lookups: Lookups, watch: Watch) -> None:
        self.waits = waits
        self._lookups = lookups
        self._watch = watch

    def obstacle(self, run: RunContext) -> str | None:
        for run_id, record in self._lookups.unstarted().items():
            if run_id != run.run_id and (reason := self._goes_first(run, record)):
                return f"run {run_id[:8]} {reason}"
        if name := self._watch.at_work():
            return f"execution {name.rpartition('/')[2]} is at work"
        for run_id, record in self._lookups.runs(limit=NEIGHBOURS + 1).records.items():
            started = run_id != run.run_id and record.status is Status.STARTED
            if started and not self._watch.ended(str(record.fields["execution"])):
                return f"run {run_id[:8]} is at work"
        return None

    def waiting(self) -> list[RunContext]:
        found = self._lookups.unstarted().values()
        runs = [
            RunContext.from_json(json.loads(record.fields["run"]))
            for record in found
            if record.status is not Status.IN_PROGRESS or record.abandoned()
        ]
        return sorted(runs, key=lambda run: (run.kind != "manual", run.slot.timestamp() if run.slot else 0.0))

    def _goes_first(self, run: RunContext, other: Record) -> str | None:
        """Why `other` goes before `run`, if it does.

        Who skips looks at earlier slots alone: of two deliveries that meet, one starts.
        """
        slot = other.fields.get("slot")
        earlier = bool(slot and run.slot and parse_instant(slot) < run.slot)
        if other.status is Status.IN_PROGRESS and not other.abandoned():
            return "is being started" if earlier or self.waits is Status.QUEUED else None
        return "waits before it" if earlier and self.waits is Status.QUEUED else None
