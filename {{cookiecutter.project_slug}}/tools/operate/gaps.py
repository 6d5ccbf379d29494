"""`gaps` and `backfill`: the slots that the schedule demanded against the runs that exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from exactly_once.identity import RunContext, slot_run
from tools.errors import UserError
from tools.operate import history, schedule
from tools.operate.naming import instant, short
from tools.operate.place import Place, changes, note
from tools.operate.runs import BAD, Bar, Run, joined
from tools.operate.schedule import Demand
from tools.operate.starting import launch, wait
from tools.operate.tables import Cell, table

FOUND = 3
"""Exit code when a slot is missing, or its run did not succeed and waits for a person."""


@dataclass(frozen=True)
class Slot:
    """A slot that was due, and what became of it: a run's standing, "missing", "due" (a retry may still come) or
    "uncertain" (the clocks changed)."""

    demand: Demand
    run: RunContext
    found: Run | None
    due: bool

    @property
    def outcome(self) -> str:
        if self.found:
            return self.found.standing
        if self.demand.uncertain:
            return "uncertain"
        return "due" if self.due else "missing"

    @property
    def wrong(self) -> bool:
        return self.outcome == "missing" or (self.outcome in BAD and not self.due)

    @property
    def to_start(self) -> bool:
        """Whether a backfill starts it; one that failed is resumed instead."""
        return self.outcome in ("missing", "due", "uncertain", "not started", "skipped", "queued")

    def as_json(self) -> dict[str, Any]:
        return {
            **schedule.as_json(self.demand),
            "run_id": self.run.run_id,
            "outcome": self.outcome,
            "wrong": self.wrong,
        }


def demanded(place: Place, since: datetime, until: datetime, bar: Bar, *, always: bool = False) -> list[Slot]:
    """Every slot in [since, until) with its run; with `always` those of pauses and before the first deploy as well."""
    settings = place.settings
    client = place.lookups.client
    changed: list[schedule.Change] = []
    if place.options.cloud:
        try:
            changed = list(schedule.changes(history.of_job(settings)))
        except history.Unread as error:
            place.say(f"changes of the job are not known, the cron of the settings counts: {error}")
    deploys = schedule.merged(settings, schedule.history(client, settings.pipeline), changed, since)
    if always:
        deploys = schedule.always(deploys, since)
    demands = list(schedule.demanded(deploys, since, until))
    runs = [
        slot_run(settings.pipeline, settings.scope, one.deploy.job, one.slot, one.deploy.time_zone) for one in demands
    ]
    records = place.lookups.many([run.run_id for run in runs])
    found = {run.run_id: run for run in joined(place, records, bar)}
    grace = timedelta(seconds=settings.max_retry_duration + settings.attempt_deadline)
    now = place.now()
    return [
        Slot(demand, run, found.get(run.run_id), demand.slot > now - grace)
        for demand, run in zip(demands, runs, strict=True)
    ]


def _since(place: Place, text: str) -> datetime:
    """Not before what the records still know. Says so if that is later."""
    wanted = instant(text, place.now())
    kept = place.now() - timedelta(days=place.settings.retention_days)
    if wanted < kept:
        place.say(f"records are kept for {place.settings.retention_days} days: looking from {kept:%Y-%m-%d %H:%M}Z on")
    return max(wanted, kept)


@click.command()
@click.option("--since", default="7d", show_default=True, metavar="T", help="7d, 12h, 2026-01-15 or RFC 3339.")
@click.option("--backfill", "fill", is_flag=True, help="Start what is missing, in the order of slots.")
@click.option("--max-parallel", default=1, show_default=True, type=click.IntRange(1, 100))
@note(required=False)
@changes
def gaps(place: Place, since: str, fill: bool, max_parallel: int, note: str) -> int:
    """Compare the slots that were due with the runs there are. Exits with 3 if one is missing or did not succeed."""
    start = _since(place, since)
    with Bar(place, "reading runs") as bar:
        slots = demanded(place, start, place.now(), bar)
    wrong = [slot for slot in slots if slot.wrong]
    if not place.options.json:
        _show(place, slots, wrong)
    missing = [slot for slot in wrong if slot.to_start]
    done: dict[str, str] = {}
    if fill and missing:
        done = _fill(place, missing, max_parallel, note or "backfill of gaps")
    counts = Counter(slot.outcome for slot in slots)
    place.give({"slots": len(slots), "outcomes": counts, "wrong": [slot.as_json() for slot in wrong], "started": done})
    left = [slot for slot in wrong if done.get(slot.run.run_id) != "succeeded"]
    return FOUND if left else 0


def _show(place: Place, slots: Sequence[Slot], wrong: Sequence[Slot]) -> None:
    counts = Counter(slot.outcome for slot in slots)
    said = ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none was due"
    place.say(f"{len(slots)} slots: {said}")
    if wrong:
        rows: list[list[Cell]] = []
        for slot in wrong:
            deploy, run = slot.demand.deploy, short(slot.run.run_id) if slot.found else ""
            cron = f"{deploy.schedule} ({deploy.time_zone})"
            rows.append([schedule.as_json(slot.demand)["slot"], (slot.outcome, "red"), run, cron])
        place.say(table(["slot", "outcome", "run", "cron"], rows))


@click.command()
@click.option("--from", "first", required=True, metavar="T", help="The first slot (RFC 3339, a date, 7d).")
@click.option("--to", "last", required=True, metavar="T", help="Slots before this one.")
@click.option("--max-parallel", default=1, show_default=True, type=click.IntRange(1, 100))
@note(required=False)
@changes
def backfill(place: Place, first: str, last: str, max_parallel: int, note: str) -> None:
    """Run the slots of a time that have not run, in their order, by the cron that was in force. Repeatable.

    Slots of a pause count, and those before the first deploy, by the first cron.
    """
    start, end = instant(first, place.now()), instant(last, place.now())
    if start >= end:
        raise UserError("--from has to lie before --to")
    if end > place.now():
        raise UserError("--to lies in the future: the Scheduler delivers those slots")
    with Bar(place, "reading runs") as bar:
        slots = demanded(place, start, end, bar, always=True)
    wanted = [slot for slot in slots if slot.to_start]
    failed = [slot for slot in slots if slot.wrong and not slot.to_start]
    if failed:
        place.say(f"{len(failed)} slots ran and failed: ./pipeline resume --failed goes on with them")
    if not wanted:
        place.say(f"all {len(slots)} slots have run" if slots else "the schedule has no slot in that time")
        place.give({"started": {}})
        return
    place.give({"started": _fill(place, wanted, max_parallel, note or "backfill")})


def _fill(place: Place, wanted: Sequence[Slot], most: int, why: str) -> dict[str, str]:
    """Start them in order, at most `most` at once; how each run ended. Raises UserError when one does not succeed."""
    first, last = wanted[0].run.slot, wanted[-1].run.slot
    place.confirm(
        [
            f"{len(wanted)} slots will be run in order, {most} at a time, "
            f"from {first:%Y-%m-%d %H:%M}Z to {last:%Y-%m-%d %H:%M}Z"
        ]
    )
    active: dict[str, str] = {}
    done: dict[str, str] = {}

    def until(most_left: int) -> None:
        for name, state in wait(place, active, most_left).items():
            run_id = active.pop(name)
            done[run_id] = state
            place.say(f"run {short(run_id)} {state}")
            if state != "succeeded":
                left = len(wanted) - len(done) - len(active)
                raise UserError(
                    f"run {short(run_id)} {state}: stopped, {left} slots left; resume it, then the same again"
                )

    for slot in wanted:
        until(most - 1)
        started = launch(place, slot.run, why)
        if started.by_us:
            place.say(f"run {short(slot.run.run_id)} of {slot.run.slot:%Y-%m-%d %H:%M}Z started")
        active[started.execution] = slot.run.run_id
    until(0)
    return done


@click.command()
@click.option("--paused", is_flag=True, help="The job is paused from now on.")
@changes
def deployed(place: Place, paused: bool) -> None:
    """Note that the schedule of the settings is in force from now on, for gaps and backfill. Repeatable."""
    settings = place.settings
    place.confirm([f"noting: {settings.schedule} ({settings.time_zone}), job {settings.job}{', paused' * paused}"])
    noted = schedule.record(place.lookups.client, settings, place.now(), paused, place.operator.who)
    place.say("noted" if noted else "unchanged")
    place.give({"noted": noted})
