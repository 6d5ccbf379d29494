"""`resolve`, `accept`, `redo` and `cancel`: what an operator decides. Each is kept in the record: who, when, why."""

from __future__ import annotations

import json
from typing import Any

import click
from google.api_core import exceptions as api

from exactly_once.errors import NotAccepted
from exactly_once.records import Record, Status
from tools.check.calls import step_calls
from tools.emulators.workflows.definition import load as load_workflow
from tools.emulators.workflows.errors import DefinitionErrors
from tools.errors import UserError
from tools.operate.listing import one_step, steps_of
from tools.operate.naming import find, short
from tools.operate.place import Place, changes, note
from tools.operate.runs import Bar, step_name

WORKFLOW = "workflows/main.yaml"


def at_work(place: Place, run_id: str, record: Record) -> str | None:
    """The name of an execution of the run that has not ended."""
    name = str(record.fields.get("execution") or "")
    found = [*(place.executions.of(run_id)), *([known] if name and (known := place.executions.get(name)) else [])]
    return next((each.name for each in found if each.at_work), None)


def refuse_at_work(place: Place, run_id: str, record: Record, what: str) -> None:
    """Raises UserError while an execution of the run is at work."""
    if name := at_work(place, run_id, record):
        raise UserError(
            f"run {short(run_id)} is at work (execution {name.rpartition('/')[2]}): {what} when it has ended, or cancel"
        )


def _seen(step: Record) -> str:
    tries = f"{step.attempts} attempt{'s' * (step.attempts != 1)}"
    return f"it is {'held' if step.status is Status.UNKNOWN else step.status.value} after {tries}" + (
        f": {step.error}" if step.error else ""
    )


@click.command()
@click.argument("run")
@click.argument("step")
@click.argument("item", required=False)
@click.option("--done", is_flag=True, help="Its effect is there: it counts as completed.")
@click.option("--redo", "again", is_flag=True, help="Its effect is not there: the next attempt runs it.")
@click.option("--result", metavar="JSON", help="With --done: what the workflow gets as its result.")
@note(required=True)
@changes
def resolve(
    place: Place, run: str, step: str, item: str | None, done: bool, again: bool, result: str | None, note: str
) -> None:
    """Decide STEP (or its ITEM) of RUN that is held, failed, or was left in progress. Starts nothing: see resume."""
    if done == again:
        raise click.UsageError("give one of --done and --redo")
    if result is not None and not done:
        raise click.UsageError("--result goes with --done")
    value = _json(result)
    run_id, _ = find(place.lookups, place.settings, run)
    seen = one_step(place, run_id, step, item)
    what = (
        f"completed with the result {json.dumps(value)}" if done else "to be run again, under the same idempotency key"
    )
    place.confirm([f"{step_name(seen)} of run {short(run_id)}: {_seen(seen)}", f"it will count as {what}"])
    try:
        outcome: Any = "done" if done else "redo"
        place.operator.resolve(run_id, step, item, attempt_id=seen.attempt_id, outcome=outcome, note=note, result=value)
    except NotAccepted as error:
        raise UserError(f"{step_name(seen)} of run {short(run_id)}: {error}") from None
    place.say(f"resolved; ./pipeline resume {short(run_id)} goes on with the run")
    place.give({"run_id": run_id, "step": step, "item": item, "resolved": outcome})


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"--result is no JSON: {error}") from None


@click.command()
@click.argument("run")
@click.argument("step")
@click.argument("item", required=False)
@note(required=True)
@changes
def accept(place: Place, run: str, step: str, item: str | None, note: str) -> None:
    """Let the recorded result of STEP (or its ITEM) of RUN stand, whatever input a fixed workflow gives it now."""
    run_id, _ = find(place.lookups, place.settings, run)
    seen = one_step(place, run_id, step, item)
    place.confirm(
        [
            f"{step_name(seen)} of run {short(run_id)}: {_seen(seen)}",
            "its recorded result will be answered for any input; it is not done again",
        ]
    )
    try:
        place.operator.accept(run_id, step, item, attempt_id=seen.attempt_id, note=note)
    except NotAccepted as error:
        raise UserError(f"{step_name(seen)} of run {short(run_id)}: {error}") from None
    place.say(f"accepted; ./pipeline resume {short(run_id)} goes on with the run")
    place.give({"run_id": run_id, "step": step, "item": item, "accepted": True})


@click.command()
@click.argument("run")
@note(required=True)
@changes
def cancel(place: Place, run: str, note: str) -> None:
    """Cancel the execution of RUN. What is done stays done; resume goes on from there."""
    run_id, record = find(place.lookups, place.settings, run)
    name = at_work(place, run_id, record)
    if name is None:
        raise UserError(f"run {short(run_id)} has no execution at work: there is nothing to cancel")
    place.confirm(
        [
            f"execution {name.rpartition('/')[2]} of run {short(run_id)} will be cancelled",
            "a step that is at work at this moment carries on to its end; what is done stays done",
        ]
    )
    try:
        place.operator.cancelling(run_id, attempt_id=record.attempt_id, note=note)
        place.executions.cancel(name)
    except NotAccepted as error:
        raise UserError(f"run {short(run_id)}: {error}") from None
    except (api.FailedPrecondition, api.NotFound):
        raise UserError(f"run {short(run_id)}: its execution ended before it was cancelled") from None
    place.say(f"cancelled; ./pipeline resume {short(run_id)} goes on with the run")
    place.give({"run_id": run_id, "cancelled": name})


def order_of_steps(place: Place) -> list[str]:
    """The steps in the order of the workflow's source. Raises UserError."""
    file = place.settings.root / WORKFLOW
    try:
        definition = load_workflow(file.read_text(), WORKFLOW, connectors=lambda name: None)
    except (OSError, DefinitionErrors) as error:
        raise UserError(f"{WORKFLOW} cannot be read, which says the order of the steps: {error}") from None
    return list(dict.fromkeys(call.step for call in step_calls(definition) if call.step))


@click.command()
@click.argument("run")
@click.option("--from", "first", required=True, metavar="STEP", help="This step and all that come after it.")
@note(required=True)
@changes
def redo(place: Place, run: str, first: str, note: str) -> None:
    """Have steps of RUN done again from STEP on, even those that are completed. Says which effects that repeats."""
    run_id, record = find(place.lookups, place.settings, run)
    order = order_of_steps(place)
    if first not in order:
        raise UserError(f"the workflow has no step {first}: it has {', '.join(order)}")
    refuse_at_work(place, run_id, record, "redo")
    names = order[order.index(first) :]
    with Bar(place, "reading steps") as bar:
        records = [step for step in steps_of(place, run_id, bar).values() if step.fields.get("step") in names]
    if not records:
        raise UserError(f"run {short(run_id)} has done nothing from {first} on: resume it")
    # The last first: what stops half-way has not begun to repeat the steps that the others depend on.
    records.sort(key=lambda step: names.index(str(step.fields["step"])), reverse=True)
    plan = [f"run {short(run_id)}: these will be done again by the next resume"]
    plan += [_repeats(place, name, records) for name in names if _of(records, name)]
    place.confirm(plan)
    for step in records:
        try:
            place.operator.redo(
                run_id, str(step.fields["step"]), step.fields.get("item"), attempt_id=step.attempt_id, note=note
            )
        except NotAccepted as error:
            raise UserError(f"{step_name(step)} of run {short(run_id)}: {error}; the same command goes on") from None
    place.say(f"{len(records)} to be done again; ./pipeline resume {short(run_id)} does them")
    place.give(
        {"run_id": run_id, "redone": [{"step": s.fields["step"], "item": s.fields.get("item")} for s in records]}
    )


def _of(records: list[Record], name: str) -> list[Record]:
    return [step for step in records if step.fields.get("step") == name]


def _repeats(place: Place, name: str, records: list[Record]) -> str:
    """What a repetition of a step means for its effect."""
    own = _of(records, name)
    done = sum(step.status is Status.COMPLETED for step in own)
    count = f"{len(own)} items, {done} of them completed" if len(own) > 1 else own[0].status.value
    source = place.settings.root / "functions" / name / "main.py"
    if source.exists() and "@transactional_step" in source.read_text():
        return f"  {name} ({count}): its writes to Firestore are made AGAIN"
    return (
        f"  {name} ({count}): the receiver is called AGAIN with the same idempotency key; one that honours it answers "
        "as before, any other repeats the effect"
    )
