"""Runs as they stand: the record says whether a run was started, its execution how it went."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rich.progress import Progress

from exactly_once.records import Record, Status
from tools.operate.executions import Execution
from tools.operate.place import Place

BAD = ("failed", "cancelled", "unavailable", "not started")
"""Standings that wait for a person."""

STANDINGS = ("succeeded", "active", "starting", "queued", "skipped", "gone", *BAD)

PAGE = 1000
SLOW = 1.0
"""Seconds after which a progress bar appears."""


@dataclass
class Run:
    """One run. `standing` is one of STANDINGS; `held` the steps that wait for a person, where that was asked."""

    run_id: str
    record: Record
    execution: Execution | None
    held: list[str] = field(default_factory=list)
    duplicates: int | None = None

    @property
    def standing(self) -> str:
        return standing(self.record, self.execution)

    @property
    def slot(self) -> str | None:
        return self.record.fields.get("slot")

    def seconds(self, now: datetime) -> float | None:
        """How long its execution took, or has taken so far."""
        if self.execution is None or self.execution.began is None:
            return None
        return ((self.execution.ended or now) - self.execution.began).total_seconds()

    def as_json(self, now: datetime) -> dict[str, Any]:
        fields = self.record.fields
        return {
            "run_id": self.run_id,
            "slot": self.slot,
            "kind": fields.get("kind"),
            "key": fields.get("key"),
            "status": self.standing,
            "record": self.record.status.value,
            "why": fields.get("why") if self.record.status in (Status.QUEUED, Status.SKIPPED) else None,
            "by": fields.get("by"),
            "execution": fields.get("execution"),
            "began": self.execution.began if self.execution else None,
            "ended": self.execution.ended if self.execution else None,
            "seconds": self.seconds(now),
            "error": self.execution.error if self.execution else None,
            "deliveries": self.record.attempts,
            "duplicates": self.duplicates,
            "held": self.held,
        }


def standing(record: Record, execution: Execution | None) -> str:
    """In one word how a run is; "gone": its execution is not kept any more."""
    if record.status is Status.STARTED:
        return execution.state if execution else "gone"
    if record.status in (Status.QUEUED, Status.SKIPPED):
        return record.status.value
    return "starting" if record.status is Status.IN_PROGRESS and not record.abandoned() else "not started"


class Bar:
    """A progress bar that appears when it takes longer than a second."""

    def __init__(self, place: Place, what: str) -> None:
        self._progress = Progress(console=place.out, transient=True, disable=not place.out.is_terminal)
        self._task = self._progress.add_task(what, total=None, visible=False)
        self._place, self._began = place, place.now()

    def __call__(self, done: int, total: int | None = None) -> None:
        late = (self._place.now() - self._began).total_seconds() > SLOW
        self._progress.update(self._task, completed=done, total=total, visible=late)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def joined(place: Place, records: dict[str, Record], bar: Bar) -> list[Run]:
    """Records with their executions, in the same order."""
    names = [str(record.fields["execution"]) for record in records.values() if record.fields.get("execution")]
    claimed = [record.fields["claimed_at"] for record in records.values()]
    oldest = min(claimed) - timedelta(minutes=5) if claimed else None
    states = place.executions.named(names, oldest, lambda found: bar(found, len(names)))
    missing = [name for name in names if name not in states]
    if 0 < len(missing) <= 50:  # begun before their record's latest claim, or not listed yet
        with ThreadPoolExecutor(8) as pool:
            states.update({each.name: each for each in pool.map(place.executions.get, missing) if each})
    return [Run(run_id, record, states.get(str(record.fields.get("execution")))) for run_id, record in records.items()]


def listed(place: Place, since: str | None, until: str | None, bar: Bar, page: int = PAGE) -> Iterator[list[Run]]:
    """All runs in pages: those of slots, latest first, then those without one, latest first."""
    after, seen = None, 0
    while True:
        found = place.lookups.runs(limit=page, after=after, since=since, until=until)
        slotted = {run_id: record for run_id, record in found.records.items() if record.fields.get("slot")}
        seen += len(slotted)
        bar(seen)
        if slotted:
            yield joined(place, slotted, bar)
        after = found.next
        if after is None or len(slotted) < len(found.records):
            break


def by_hand(place: Place, bar: Bar, since: datetime | None) -> list[Run]:
    """Runs without a slot, latest first."""
    records = place.lookups.without_slot()
    latest = sorted(records.items(), key=lambda pair: pair[1].fields["claimed_at"], reverse=True)
    return joined(place, {key: one for key, one in latest if not since or one.fields["claimed_at"] >= since}, bar)


def look_for_held(place: Place, runs: list[Run]) -> None:
    """Note the steps that wait for a person, of the runs that may have some."""
    candidates = [run for run in runs if run.standing in (*BAD, "active")]
    with ThreadPoolExecutor(8) as pool:
        for run, held in zip(candidates, pool.map(lambda run: _held(place, run.run_id), candidates), strict=True):
            run.held = held


def _held(place: Place, run_id: str) -> list[str]:
    found: list[str] = []
    for status in (Status.UNKNOWN, Status.FAILED):
        for record in place.lookups.steps(run_id, limit=20, status=status.value).records.values():
            found.append(step_name(record))
    return found


def step_name(record: Record) -> str:
    """`step`, or `step item`."""
    item = record.fields.get("item")
    step = str(record.fields.get("step"))
    return step if item is None else f"{step} {json.dumps(item, ensure_ascii=False) if ' ' in str(item) else item}"
