"""`runs` and `show`: how runs stand, and the receipt of one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.text import Text

from exactly_once.identity import instant_text
from exactly_once.records import Record, Status
from tools.errors import UserError
from tools.operate import history
from tools.operate.naming import find, instant, short
from tools.operate.place import Place, reads
from tools.operate.runs import BAD, PAGE, STANDINGS, Bar, Run, by_hand, joined, listed, look_for_held, step_name
from tools.operate.tables import Cell, table

COLOURS = {"succeeded": "green", "active": "cyan", "starting": "cyan", "queued": "yellow", "skipped": "yellow"}

STEP_COLOURS = {Status.COMPLETED: "green", Status.IN_PROGRESS: "yellow", Status.RELEASED: "yellow"}

SHOWN = 200
"""Steps and items that `show` lists without --all; those that are not done come first."""

LINES = 12
"""Log lines of a step that is not done."""

FAR_PAST = datetime(1970, 1, 1, tzinfo=UTC)


@click.command()
@click.option("--since", metavar="T", help="Slots from then on: 7d, 12h, 2026-01-15 or RFC 3339.")
@click.option("--until", metavar="T", help="Slots before then.")
@click.option("--status", type=click.Choice(STANDINGS), multiple=True, help="Only these; may be given several times.")
@click.option("--failed", is_flag=True, help="Only those that wait for a person: " + ", ".join(BAD) + ".")
@click.option("--limit", default=50, show_default=True, help="Rows at most, the latest.")
@click.option("--all", "everything", is_flag=True, help="All rows.")
@click.option("--duplicates", is_flag=True, help="Count duplicates from Cloud Logging (on the laptop always counted).")
@reads
def runs(
    place: Place,
    since: str | None,
    until: str | None,
    status: tuple[str, ...],
    failed: bool,
    limit: int,
    everything: bool,
    duplicates: bool,
) -> None:
    """List runs, the latest slot first: how each stands, how long it took, what is held."""
    wanted = set(status) | (set(BAD) if failed else set())
    start = instant(since, place.now()) if since else None
    end = instant(until, place.now()) if until else None
    most = None if everything else limit
    with Bar(place, "reading runs") as bar:
        found = _found(place, start, end, wanted, most, bar)
        shown = found if most is None else found[:most]
        look_for_held(place, shown)
    if duplicates or place.events:
        _count_duplicates(place, shown, start)
    now = place.now()
    if place.options.json:
        place.give([run.as_json(now) for run in shown])
        return
    if not shown:
        place.say("no runs" + (f" that are {' or '.join(sorted(wanted))}" if wanted else ""))
        return
    place.say(_runs_table(shown, now))
    if len(found) > len(shown):
        last = next((run.slot for run in reversed(shown) if run.slot), None)
        place.say(f"the latest {len(shown)}; older ones: --until {last}, or --all" if last else "more: --all")


def _found(
    place: Place, start: datetime | None, end: datetime | None, wanted: set[str], most: int | None, bar: Bar
) -> list[Run]:
    """The runs that match, latest first; one more than `most` if there are more."""

    def matching(some: Iterable[Run]) -> list[Run]:
        return [run for run in some if not wanted or run.standing in wanted]

    found: list[Run] = []
    page = PAGE if wanted or most is None else most + 1
    for some in listed(place, _text(start), _text(end), bar, page):
        found += matching(some)
        if most is not None and len(found) > most:
            break
    found += [run for run in matching(by_hand(place, bar, start)) if not end or _when(run) < end]
    return sorted(found, key=_when, reverse=True)


def _when(run: Run) -> datetime:
    moment: datetime = datetime.fromisoformat(run.slot) if run.slot else run.record.fields["claimed_at"]
    return moment


def _text(moment: datetime | None) -> str | None:
    return instant_text(moment) if moment else None


def _count_duplicates(place: Place, shown: list[Run], since: datetime | None) -> None:
    try:
        counted = history.duplicates(place.settings, place.events, since)
    except history.Unread as error:
        place.say(f"duplicates are not counted: {error}")
        return
    for run in shown:
        run.duplicates = counted[run.run_id]


def _runs_table(shown: list[Run], now: datetime) -> str:
    counted = any(run.duplicates is not None for run in shown)
    head = ["slot or key", "kind", "run", "status", "took", *(["duplicates"] if counted else []), "held or failed"]
    rows: list[list[Cell]] = []
    for run in shown:
        count = [str(run.duplicates or "")] if counted else []
        name, kind = run.slot or str(run.record.fields.get("key") or ""), str(run.record.fields.get("kind") or "")
        colour = COLOURS.get(run.standing, "red" if run.standing in BAD else "white")
        time = took(run.seconds(now))
        rows.append([name, kind, short(run.run_id), (run.standing, colour), time, *count, _few(run.held)])
    return table(head, rows)


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def took(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return str(timedelta(seconds=round(seconds)))


@click.command()
@click.argument("run")
@click.option("--all", "everything", is_flag=True, help=f"Every step and item, not the first {SHOWN}.")
@reads
def show(place: Place, run: str, everything: bool) -> None:
    """Show the receipt of RUN (a short id or a slot): steps and items, who holds what, replays, errors, log lines."""
    run_id, record = find(place.lookups, place.settings, run)
    with Bar(place, "reading steps") as bar:
        one = joined(place, {run_id: record}, bar)[0]
        steps = steps_of(place, run_id, bar)
    executions = place.executions.of(run_id)
    try:
        lines, unread = history.of_run(place.settings, place.events, run_id), None
    except history.Unread as error:
        lines, unread = [], str(error)
    events: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        events[str(line.get("step") or "")][str(line.get("event"))] += 1
    now = place.now()
    one.duplicates = None if unread else sum(events[""][name] for name in history.DUPLICATES)
    if place.options.json:
        place.give(
            {
                **one.as_json(now),
                "resolutions": record.fields.get("resolutions") or [],
                "executions": [vars(each) for each in executions],
                "link": place.execution_link(str(record.fields.get("execution") or "")),
                "steps": [_step_json(step) for step in steps.values()],
                "events": {step: dict(counts) for step, counts in events.items()},
                "log": unread,
            }
        )
        return
    _show_head(place, one, [each.id for each in executions], now)
    _show_steps(place, list(steps.values()), events, everything)
    _show_errors(place, list(steps.values()), lines, unread)
    if not steps and record.fields.get("expire_at") and record.status is Status.STARTED:
        place.say("no step has a record: none has begun, or they have been removed after their retention")


def steps_of(place: Place, run_id: str, bar: Bar) -> dict[str, Record]:
    """All records of a run's steps and items, by document id."""
    found: dict[str, Record] = {}
    after = None
    while True:
        page = place.lookups.steps(run_id, limit=PAGE, after=after)
        found |= page.records
        bar(len(found))
        if (after := page.next) is None:
            return found


def _step_json(step: Record) -> dict[str, Any]:
    fields = step.fields
    held = step.status is Status.IN_PROGRESS
    return {
        "step": fields.get("step"),
        "item": fields.get("item"),
        "status": step.status.value,
        "attempts": step.attempts,
        "crashes": step.crashes,
        "attempt_id": step.attempt_id,
        "lease_left": step.lease_left() if held and fields.get("lease_seconds") else None,
        "error": fields.get("error"),
        "result": fields.get("result"),
        "resolutions": fields.get("resolutions") or [],
    }


def _show_head(place: Place, run: Run, executions: list[str], now: datetime) -> None:
    fields = run.record.fields
    style = "bold red" if run.standing in BAD else COLOURS.get(run.standing, "")
    place.out.print(Text.assemble("run ", (run.run_id, "bold"), "  ", (run.standing, style)), soft_wrap=True)
    about = [
        ("slot", run.slot and f"{run.slot}  ({fields.get('kind')})"),
        ("key", None if run.slot else fields.get("key")),
        ("started by", fields.get("by") and f"{fields['by']['who']}  {fields['by']['why']}"),
        ("waits", fields.get("why") if run.record.status in (Status.QUEUED, Status.SKIPPED) else None),
        ("took", took(run.seconds(now))),
        ("duplicates", run.duplicates and f"{run.duplicates} deliveries refused"),
        ("execution", fields.get("execution") and place.execution_link(str(fields["execution"]))),
        ("executions", ", ".join(executions) if len(executions) > 1 else None),
        ("ended with", run.execution.error if run.execution else None),
    ]
    for name, text in about:
        if text:
            place.out.print(Text.assemble((f"  {name:<12}", "dim"), str(text)), soft_wrap=True)
    for entry in fields.get("resolutions") or []:
        place.out.print(Text.assemble(("  operator    ", "dim"), _entry(entry)), soft_wrap=True)


def _entry(entry: dict[str, Any]) -> str:
    return f"{entry['when']:%Y-%m-%d %H:%M:%S} {entry['who']}: {entry['what']} ({entry['why'] or 'no reason given'})"


def _show_steps(place: Place, steps: list[Record], events: dict[str, Counter[str]], everything: bool) -> None:
    if not steps:
        return
    rows: list[list[Cell]] = []
    ordered = sorted(steps, key=lambda step: step.status is Status.COMPLETED)
    for step in ordered if everything else ordered[:SHOWN]:
        word = "held" if step.status is Status.UNKNOWN else step.status.value
        said = step.error or "; ".join(_entry(entry) for entry in step.fields.get("resolutions") or [])
        tries = [str(step.attempts), str(step.crashes or "")]
        rows.append([step_name(step), (word, STEP_COLOURS.get(step.status, "red")), *tries, _holder(step), said])
    place.say("", table(["step", "status", "attempts", "crashed", "held by", "what"], rows))
    if len(steps) > SHOWN and not everything:
        counts = Counter(step.status.value for step in steps)
        place.say(f"{SHOWN} of {len(steps)}: " + ", ".join(f"{n} {name}" for name, n in counts.items()) + "; --all")
    told = {
        "step.replayed": "replayed",
        "step.fenced": "fenced",
        "step.taken_over": "taken over",
        "step.duplicate": "busy",
    }
    for name, counts in events.items():
        words = [f"{counts[event]} {word}" for event, word in told.items() if counts[event]]
        if name and words:
            place.say(f"{name}: {', '.join(words)}")


def _holder(step: Record) -> str:
    if step.status is not Status.IN_PROGRESS or not step.fields.get("lease_seconds"):
        return ""
    until = step.fields["claimed_at"] + timedelta(seconds=step.fields["lease_seconds"])
    left = step.lease_left()
    words = f"{left:.0f} s left" if left > 0 else "run out"
    return f"{step.attempt_id[:8]} until {until:%H:%M:%S}Z ({words})"


def _show_errors(place: Place, steps: list[Record], lines: list[history.Line], unread: str | None) -> None:
    """The log lines of each step that is not done, its traceback among them."""
    if unread:
        place.say(unread)
    for step in [step for step in steps if step.status in (Status.UNKNOWN, Status.FAILED, Status.RELEASED)][:5]:
        own = [
            line
            for line in lines
            if line.get("step") == step.fields.get("step")
            and line.get("item") == step.fields.get("item")
            and str(line.get("severity")) in ("WARNING", "ERROR", "CRITICAL")
        ]
        if own:
            place.out.print(Text(f"\nlog of {step_name(step)}", style="bold"))
        for line in own[-LINES:]:
            when = datetime.fromtimestamp(float(line.get("time", 0.0)), UTC)
            place.out.print(Text(f"  {when:%H:%M:%S}Z {line.get('message', line.get('event'))}"), soft_wrap=True)
            if line.get("traceback"):
                place.out.print(Text(str(line["traceback"]).rstrip(), style="red"), soft_wrap=True)


def one_step(place: Place, run_id: str, step: str, item: str | None) -> Record:
    """The record of a step or item, as an operator sees it now. Raises UserError if there is none."""
    from exactly_once.identity import step_path

    record = place.operator.protocol.read(step_path(place.settings.pipeline, run_id, step, item))
    if record:
        return record
    page = place.lookups.steps(run_id, limit=PAGE).records.values()
    items = [
        str(other.fields["item"]) for other in page if other.fields.get("step") == step and other.fields.get("item")
    ]
    if items and item is None:
        raise UserError(f"{step} has {len(items)} items: name one, such as {items[0]}")
    known = sorted({str(other.fields.get("step")) for other in page})
    what = f"item {item!r} of {step}" if item else f"step {step}"
    there = f"its steps are {', '.join(known)}" if known else "it has no steps' records: removed after their retention?"
    raise UserError(f"run {short(run_id)} has no record of {what}; {there}")
