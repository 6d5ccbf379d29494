"""The result as a grid on the terminal: a row a hop, a column a fault, colour and words."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from .cells import (
    AGAIN,
    ANSWER_LOST,
    COLUMNS,
    KILL_AFTER,
    KILL_BEFORE,
    KILL_CALLEE,
    LATE,
    LOST,
    SLOW,
    TWICE,
    ZOMBIE,
    Hop,
)
from .proof import FAILED, HELD, OK, Proof, Verdict

MARKS = {OK: ("ok", "green"), HELD: ("held", "yellow"), FAILED: ("FAILED", "bold red")}
"""Status -> word and style."""


WIDEST = 1000
"""Characters; more than any grid has."""

HEADINGS = {
    LOST: "call lost",
    ANSWER_LOST: "answer lost",
    TWICE: "twice",
    AGAIN: "again after",
    LATE: "too late",
    SLOW: "slow answer",
    KILL_BEFORE: "killed before",
    KILL_AFTER: "killed after",
    KILL_CALLEE: "callee killed",
    ZOMBIE: "wakes late",
}
"""Words of at most six letters over a column."""


def table(verdicts: Sequence[Verdict]) -> dict[Hop, dict[str, Verdict]]:
    """Hop -> column -> verdict, of the troubles that are one cell, in their order."""
    rows: dict[Hop, dict[str, Verdict]] = {}
    for verdict in verdicts:
        if len(verdict.trouble.cells) == 1:
            cell = verdict.trouble.cells[0]
            rows.setdefault(cell.hop, {})[cell.column] = verdict
    return rows


def show(out: Console, proof: Proof) -> None:
    """Print the grid, each failure with its story, and the sum."""
    for problem in proof.problems:
        out.print(Text(f"not even a clean run holds: {problem}", "red"))
    rows = table(proof.verdicts)
    if rows:
        grid = _grid(rows)
        grid.width = out.measure(grid, options=out.options.update(width=WIDEST)).maximum
        out.print(grid, crop=False)  # a narrow screen breaks its lines, but loses no column
        out.print()
    parts: list[RenderableType] = [_combined(verdict) for verdict in proof.verdicts if len(verdict.trouble.cells) > 1]
    for verdict in proof.failed:
        parts += [*_failure(verdict), Text()]
    parts.append(summary(proof))
    out.print(Group(*parts))


def _grid(rows: dict[Hop, dict[str, Verdict]]) -> Table:
    """Rows that share caller and callee stand under one heading, so that the grid fits a terminal of 100 columns."""
    used = [column for column in COLUMNS if any(column in row for row in rows.values())]
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    grid.add_column("", no_wrap=True)
    for column in used:
        grid.add_column(HEADINGS[column], justify="center", width=6)
    ends = ""
    for hop, row in rows.items():
        if hop.ends != ends:
            ends = hop.ends
            grid.add_row(Text(ends, "bold"))
        grid.add_row(f"  {hop.call}", *(_mark(row.get(column)) for column in used))
    return grid


def _mark(verdict: Verdict | None) -> Text:
    return Text(*MARKS[verdict.status]) if verdict else Text("-", "dim")


def _combined(verdict: Verdict) -> Text:
    return Text.assemble(MARKS[verdict.status], "  ", " + ".join(str(cell.fault) for cell in verdict.trouble.cells))


def _failure(verdict: Verdict) -> list[RenderableType]:
    head = " + ".join(f"{cell.hop.name}: {cell.column}" for cell in verdict.trouble.cells)
    return [
        Text(head, "bold red"),
        *(Text(f"  {difference}", "red") for difference in verdict.differences),
        *(Text(f"    {line}", "dim") for line in verdict.story),
        Text(f"  again: {replay(verdict)}"),
    ]


def replay(verdict: Verdict) -> str:
    """The command that tries this trouble again, by itself."""
    return f"./pipeline prove --cell '{verdict.trouble.id}'"


def summary(proof: Proof) -> Text:
    """The last line: what was shown."""
    seconds = f"{proof.seconds:.0f} s"
    if proof.problems:
        return Text(
            f"NOT EXACTLY ONCE  {len(proof.problems)} findings in clean runs; no cell was tried; {seconds}", "bold red"
        )
    tried = len(proof.verdicts)
    if proof.failed:
        return Text(f"NOT EXACTLY ONCE  {len(proof.failed)} of {tried} cells failed; {seconds}", "bold red")
    held = sum(verdict.status == HELD for verdict in proof.verdicts)
    after = f", {held} of them after an operator had resolved what was held" if held else ""
    cells = "1 cell ends" if tried == 1 else f"{tried} cells end"
    hops = len({cell.hop for verdict in proof.verdicts for cell in verdict.trouble.cells})
    return Text(
        f"EXACTLY ONCE  {cells} over {hops} hop{'s' * (hops != 1)} as in a clean run{after}; {seconds}", "bold green"
    )
