"""`run`, `backfill` and `resume`: executions that an operator starts, under the run ids that the proxy would use."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import click

from exactly_once.errors import ExactlyOnceError, NotAccepted
from exactly_once.identity import RunContext, instant_text, manual_run, parse_instant, slot_run
from exactly_once.launching import Started
from exactly_once.records import Status
from tools.emulators.scheduler import slots
from tools.errors import UserError
from tools.operate.deciding import refuse_at_work
from tools.operate.errors import words
from tools.operate.naming import find, instant, short
from tools.operate.place import Options, Place, changes, note, place
from tools.operate.runs import BAD, Bar, Run, joined, listed, look_for_held

POLL = 0.5
"""Seconds between two looks at executions that are waited for."""


@click.command()
@click.option("--key", metavar="K", help="A run by hand under a key of your own: the same key is the same run.")
@click.option("--slot", metavar="T", help="The run of this scheduled instant (RFC 3339), as the Scheduler names it.")
@click.option("--cloud", is_flag=True, help="On Google Cloud, with your own credentials.")
@click.option("--env", "environment", metavar="NAME", help="settings.NAME.env lies over settings.env.")
@click.option("--firestore", default="embedded", show_default=True, metavar="embedded|official|HOST:PORT")
@click.option("--yes", is_flag=True, help="Do not ask first (only --cloud asks).")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@note(required=False)
@click.pass_context
def run(
    context: click.Context,
    key: str | None,
    slot: str | None,
    cloud: bool,
    environment: str | None,
    firestore: str,
    yes: bool,
    form: str,
    note: str,
) -> None:
    """Start one run and wait for its end: on this machine's chain (one is started if none runs), or with --cloud.

    Without an option, a run by hand under a new key. A run that exists is not started again.
    """
    if not cloud:
        from tools.local import run as on_this_machine

        context.invoke(on_this_machine, key=key, slot=slot, firestore=firestore, note=note)
        return
    with place(Options(cloud, environment, form == "json", yes)) as there:
        wanted = _wanted(there, key, slot)
        what = f"the slot {slot}" if slot else f"key {wanted.key!r}"
        doubt = _doubt(there, wanted)
        there.confirm([f"run {short(wanted.run_id)} of {what} will be started on {there.settings.project}", *doubt])
        started = launch(there, wanted, note)
        if not started.by_us:
            there.say(f"run {short(wanted.run_id)} exists already: this is how it stands")
        ended = wait(there, [started.execution], 0)
        there.give({"run_id": wanted.run_id, "execution": started.execution, "by_us": started.by_us, **ended})
        there.say(f"{ended[started.execution]}: ./pipeline show {short(wanted.run_id)} --cloud")
        sys.exit(0 if ended[started.execution] == "succeeded" else 1)


def _wanted(there: Place, key: str | None, slot: str | None) -> RunContext:
    settings = there.settings
    if key and slot:
        raise click.UsageError("--key and --slot say two different things: give one of them")
    if slot:
        try:
            moment = parse_instant(slot)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--slot") from None
        if moment > there.now():
            raise UserError(f"the slot {slot} is still to come: the Scheduler delivers it; to run now, give a --key")
        return slot_run(settings.pipeline, settings.scope, settings.job, moment, settings.time_zone)
    new = f"by hand {datetime.now(UTC).isoformat(timespec='milliseconds')}"
    return manual_run(settings.pipeline, settings.scope, key or new, job=settings.job, zone=settings.time_zone)


def _doubt(there: Place, run: RunContext) -> list[str]:
    """Says so if the schedule has no such slot."""
    settings = there.settings
    if run.slot is None or next(slots(settings.schedule, settings.time_zone, run.slot.timestamp() - 1)) == run.slot:
        return []
    return [f"NOTE: the schedule {settings.schedule!r} ({settings.time_zone}) has no such slot"]


def launch(there: Place, run: RunContext, why: str) -> Started:
    """Claim the run and start its execution, as the proxy does. Raises UserError."""
    try:
        return there.by_hand(why).deliver(run, there.operator.log.about(pipeline=run.pipeline))
    except ExactlyOnceError as error:
        raise UserError(f"run {short(run.run_id)} was not started: {words(error)}") from None


def wait(there: Place, names: Iterable[str], most: int, sleep: Callable[[float], None] = time.sleep) -> dict[str, str]:
    """Wait until at most `most` of the executions are at work; the states of those that have ended."""
    waiting, ended = list(names), dict[str, str]()
    while True:
        for name in list(waiting):
            found = there.executions.get(name)
            if found is None or not found.at_work:
                waiting.remove(name)
                ended[name] = found.state if found else "gone"
        if len(waiting) <= most:
            return ended
        sleep(POLL)


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--failed", is_flag=True, help="All runs that failed, were cancelled or were not started.")
@click.option("--since", metavar="T", help="With --failed: slots from then on (7d, 12h, 2026-01-15).")
@click.option("--anyway", is_flag=True, help="Also with steps that are held or failed: it stops there again.")
@note(required=False)
@changes
def resume(there: Place, runs: tuple[str, ...], failed: bool, since: str | None, anyway: bool, note: str) -> None:
    """Start a new execution of each RUN under its run id: what is done is replayed, the rest runs."""
    if bool(runs) == failed:
        raise click.UsageError("name runs, or give --failed")
    if since and not failed:
        raise click.UsageError("--since goes with --failed")
    chosen = _failed(there, since) if failed else [_one(there, name) for name in runs]
    if not chosen:
        there.say("no run has failed")
        there.give([])
        return
    look_for_held(there, chosen)
    ready, refused = [], []
    for run in chosen:
        try:
            _judge(there, run, anyway)
            ready.append(run)
        except UserError as error:
            if not failed:
                raise
            refused.append(str(error))
    there.say(*refused)
    if ready:
        there.confirm([_plan(run) for run in ready])
    done = []
    for run in ready:
        try:
            execution = _again(there, run, note)
        except UserError as error:
            if len(ready) == 1:
                raise
            refused.append(str(error))
            there.say(str(error))
            continue
        there.say(f"run {short(run.run_id)} resumed as {there.execution_link(execution)}")
        done.append({"run_id": run.run_id, "execution": execution})
    there.give(done)
    if refused:
        raise UserError(f"{len(done)} resumed, {len(refused)} not: see above")


def _one(there: Place, name: str) -> Run:
    run_id, record = find(there.lookups, there.settings, name)
    with Bar(there, "reading") as bar:
        return joined(there, {run_id: record}, bar)[0]


def _failed(there: Place, since: str | None) -> list[Run]:
    start = instant_text(instant(since, there.now())) if since else None
    with Bar(there, "reading runs") as bar:
        found = [run for page in listed(there, start, None, bar) for run in page if run.standing in BAD]
    return found[::-1]  # the earliest slot first


def _plan(run: Run) -> str:
    about = run.slot or str(run.record.fields.get("key"))
    what = "will be started" if run.record.status is not Status.STARTED else "goes on: what is done is replayed"
    return f"run {short(run.run_id)} ({about}, {run.standing}) {what}"


def _judge(there: Place, run: Run, anyway: bool) -> None:
    """Raises UserError if it is no use, or too early, to resume it."""
    name = short(run.run_id)
    if run.record.status is not Status.STARTED:
        if run.standing == "starting":
            raise UserError(f"run {name} is being started at this moment")
        return
    refuse_at_work(there, run.run_id, run.record, "resume")
    if run.held and not anyway:
        raise UserError(f"run {name} would stop again at {run.held[0]}: ./pipeline resolve {name} {run.held[0]} first")
    if run.standing == "succeeded" and not there.lookups.steps(run.run_id, limit=1, status="released").records:
        raise UserError(f"run {name} has succeeded: nothing is left to do (redo --from STEP does steps again)")


def _again(there: Place, run: Run, why: str) -> str:
    """Raises UserError."""
    if run.record.status is not Status.STARTED:
        return launch(there, context(run), why).execution
    try:
        return there.operator.resume(run.run_id, there.starter, note=why, attempt_id=run.record.attempt_id)
    except NotAccepted as error:
        raise UserError(f"run {short(run.run_id)}: {error}") from None


def context(run: Run) -> RunContext:
    return RunContext.from_json(json.loads(run.record.fields["run"]))
