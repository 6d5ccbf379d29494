"""The receipt of a run: what was delivered, decided, run, replayed and refused, counted from the lines logged.

It knows nothing of what the pipeline does: what the effects should be is said by the project's tests/expected.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tools.emulators.faults import Action, Call, Fault

Event = Mapping[str, Any]

DECISIONS = {
    "run.claimed": "claimed the run",
    "run.taken_over": "took the run over from a delivery that had not finished",
    "run.duplicate": "refused as a duplicate: the run had been started",
    "run.busy": "refused as a duplicate: another delivery was starting the run",
    "run.refused": "refused: the request said no run",
}
"""What the proxy makes of a delivery; each that it answers has one of these lines."""

OUTCOMES = {
    "run.started": "started the execution",
    "run.adopted": "found the execution that an earlier delivery had started, and started none",
    "run.released": "gave the run back after an error, for the next delivery",
    "run.fenced": "was fenced: another delivery had taken over",
}

FAULTS = {
    Action.LOSE_REQUEST: "request lost",
    Action.LOSE_ANSWER: "carried out, answer lost",
    Action.TWICE: "delivered twice at once",
    Action.AGAIN: "delivered again after its answer",
    Action.DELAY: "delayed",
    Action.DELAY_ANSWER: "answer delayed",
    Action.LATE: "carried out long after its caller had given up",
    Action.HANG: "never answered",
    Action.DROP: "every connection of the caller cut",
    Action.KILL_BEFORE: "caller's process killed (kill -9) just before",
    Action.KILL_AFTER: "carried out, then the caller's process killed (kill -9)",
    Action.KILL_CALLEE: "callee's process killed (kill -9) at work",
    Action.FREEZE: "caller's process frozen before the answer",
}


@dataclass
class StepCount:
    """One step, over all its items."""

    calls: int = 0
    events: Counter[str] = field(default_factory=Counter)
    items: set[str | None] = field(default_factory=set)


@dataclass(frozen=True)
class Receipt:
    """The counts. `deliveries` are the requests that reached the proxy's front; `answered` those that it decided on."""

    deliveries: int
    decisions: Counter[str]
    outcomes: Counter[str]
    steps: dict[str, StepCount]

    @classmethod
    def of(cls, events: Iterable[Event], steps: Sequence[str]) -> Receipt:
        """Count the events of one run, whose steps are given in the order to show them in."""
        counts = {step: StepCount() for step in steps}
        deliveries = 0
        decisions: Counter[str] = Counter()
        outcomes: Counter[str] = Counter()
        for event in events:
            name, service = str(event.get("event", "")), event["service"]
            if name == "front.request" and service == "proxy":
                deliveries += 1
            elif name == "front.request" and service in counts:
                counts[service].calls += 1
            elif name in DECISIONS:
                decisions[name] += 1
            elif name in OUTCOMES:
                outcomes[name] += 1
            elif name.startswith(("step.", "operator.")) and event.get("step") in counts:
                count = counts[event["step"]]
                count.events[name] += 1
                count.items.add(event.get("item"))
        return cls(deliveries, decisions, outcomes, counts)

    @property
    def refused(self) -> int:
        """Duplicates that were answered without doing anything."""
        return self.decisions["run.duplicate"] + self.decisions["run.busy"]


def show(out: Console, *parts: RenderableType) -> None:
    """Print each part that says something, with a line between."""
    for part in parts:
        if not (isinstance(part, Group) and not part.renderables):
            out.print()
            out.print(part)


def deliveries_table(receipt: Receipt) -> RenderableType:
    table = _table("Deliveries of the slot", "count")
    table.add_row("requests that reached the proxy", str(receipt.deliveries))
    for words, counts in ((DECISIONS, receipt.decisions), (OUTCOMES, receipt.outcomes)):
        for name, text in words.items():
            if counts[name]:
                table.add_row(f"  {text}", str(counts[name]))
    if (silent := receipt.deliveries - receipt.decisions.total()) > 0:
        table.add_row("  ended without a decision (the answer of a claim was lost, or the process died)", str(silent))
    return table


def faults_table(injected: Sequence[tuple[Fault, Call]], pending: Sequence[Fault]) -> RenderableType:
    table = _table("Injected faults", "what", "happened")
    rows: Counter[tuple[str, str]] = Counter()
    for fault, call in injected:
        rows[f"{call.caller} → {call.callee}  {call.method}", FAULTS[fault.action]] += 1
    for (where, what), times in rows.items():
        table.add_row(where, what, Text(f"{times}×" if times > 1 else "yes", style="green"))
    for fault in pending:
        where = f"{fault.caller} → {fault.callee}  {fault.method}"
        table.add_row(where, FAULTS[fault.action], Text("NO", style="bold red"))
    return table


COLUMNS = {
    "ran": ("step.running",),
    "done": ("step.completed",),
    "replayed": ("step.replayed",),
    "busy": ("step.duplicate",),
    "taken": ("step.taken_over",),
    "fenced": ("step.fenced",),
    "held": ("step.held",),
    "failed": ("step.failed",),
    "refused": ("step.refused",),
}
"""Column of the steps -> the events that it counts."""

ALWAYS = ("ran", "done", "replayed", "taken", "fenced")
"""Columns that are shown where all of them are 0, too."""


def steps_table(receipt: Receipt) -> RenderableType:
    """How often each step was called, its body ran, and what became of the other calls."""
    numbers = {
        step: {column: sum(count.events[name] for name in names) for column, names in COLUMNS.items()}
        for step, count in receipt.steps.items()
    }
    for row in numbers.values():
        row["refused"] = max(0, row["refused"] - row["held"])  # a call that ends held is refused with it
    shown = [column for column in COLUMNS if column in ALWAYS or any(row[column] for row in numbers.values())]
    table = _table("Steps", "items", "calls", *shown)
    for step, count in receipt.steps.items():
        items = len(count.items - {None})
        cells = [Text(str(numbers[step][column]), style="" if numbers[step][column] else "dim") for column in shown]
        table.add_row(step, str(items or 1), str(count.calls), *cells)
    legend = (
        "ran: the body began; replayed: the recorded result was answered; taken: over from an attempt without an end"
    )
    return Group(table, Text(legend, style="dim"))


def receivers_table(ledger: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What the receivers outside were asked, and how often it took effect there."""
    table = _table("Receivers outside", "calls", "took effect", "repeats of a key", "refused", "without key")
    for receiver in dict.fromkeys(row["receiver"] for row in ledger):
        rows = [row for row in ledger if row["receiver"] == receiver]
        outcomes = Counter(row["outcome"] for row in rows)
        unkeyed = sum(row["key"] is None for row in rows)
        counts = (len(rows), outcomes["first"], outcomes["replayed"], outcomes["other_body"], unkeyed)
        table.add_row(receiver, *map(str, counts))
    return table


def effects_table(effects: Sequence[Any]) -> RenderableType:
    """`effects`: (name, expected, seen) each, as tests/expected.py gives them."""
    table = _table("Effects", "", "expected", "seen")
    for name, expected, seen in effects:
        right = expected == seen
        mark = Text("✓" if right else "✗ WRONG", style="green" if right else "bold red")
        same = right and len(str(seen)) > SHORT
        table.add_row(str(name), mark, str(expected), Text("the same", style="dim") if same else str(seen))
    return table


def operator_lines(events: Iterable[Event]) -> RenderableType:
    """What an operator did, in order."""
    lines = [Text("Operator", style="bold")]
    for event in events:
        if str(event["event"]).startswith("operator."):
            about = f"{event['step']}: " if event.get("step") else ""
            lines.append(Text(f"  {event['event'].removeprefix('operator.')} {about}{event.get('reason', '')}"))
    return Group(*(lines if len(lines) > 1 else ()))


def verdict(problems: Sequence[str], summary: str) -> RenderableType:
    if not problems:
        return Text(f"EXACTLY ONCE  {summary}", style="bold green")
    lines = [Text(f"NOT PROVEN  {len(problems)} thing{'s' * (len(problems) > 1)} wrong:", style="bold red")]
    return Group(*lines, *(Text(f"  - {problem}", style="red") for problem in problems))


SHORT = 12
"""Characters up to which what was seen is written out even though it is as expected."""

WORDS = ("what", "happened", "")
"""Columns that hold words, not numbers."""


def _table(title: str, *columns: str) -> Table:
    """The title is the head of the first column."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column(Text(title, style="bold not dim"), overflow="fold")
    for column in columns:
        table.add_column(column, justify="left" if column in WORDS else "right")
    return table
