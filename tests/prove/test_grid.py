"""The grid on the terminal: no column is lost, whatever the width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tools.emulators.faults import Action, Fault
from tools.prove import grid
from tools.prove.cells import COLUMNS, Cell, Hop, Trouble
from tools.prove.proof import OK, Proof, Verdict


def shown(width: int, caller: str) -> list[str]:
    """The lines of a grid with every column and the longest call."""
    hop = Hop(caller, "firestore", "BatchGetDocuments", 1, 2)
    fault = Fault(Action.TWICE)
    cells = [Cell(hop, column, fault) for column in COLUMNS]
    out = io.StringIO()
    proof = Proof(cells, [], [Verdict(Trouble((cell,)), OK) for cell in cells])
    grid.show(Console(file=out, width=width, no_color=True), proof)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("caller", ["charge_orders", "a_step_whose_name_is_quite_long_"])
@pytest.mark.parametrize("width", [60, 100, 200])
def test_every_column_is_shown(width: int, caller: str) -> None:
    lines = shown(width, caller)
    assert any(line.split().count("ok") == len(COLUMNS) for line in lines)
    assert f"{caller} -> firestore" in "\n".join(lines)


def test_the_longest_calls_of_the_protocol_fit_100_columns() -> None:
    row = next(line for line in shown(100, "charge_orders") if "BatchGetDocuments" in line)
    assert row.split().count("ok") == len(COLUMNS) and len(row.rstrip()) <= 100
