"""Which faults there are: no hop is left out, and each cell can be named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.emulators.faults import Call
from tools.prove.cells import AGAIN, ANSWER_LOST, KILL_AFTER, KILL_BEFORE, LATE, LOST, TWICE, cells, combinations, named
from tools.settings import Settings, load

CALLS = [
    Call("scheduler", "proxy", "POST"),
    Call("proxy", "firestore", "Commit"),
    Call("proxy", "workflows", "CreateExecution"),
    Call("proxy", "firestore", "Commit"),
    Call("workflows", "charge_orders", "POST"),
    Call("workflows", "charge_orders", "POST"),
    Call("charge_orders", "firestore", "Commit"),
    Call("charge_orders", "firestore", "Commit"),
    Call("charge_orders", "PAYMENT_URL", "POST"),
    Call("charge_orders", "PAYMENT_URL", "POST"),
    Call("charge_orders", "firestore", "Commit"),
    Call("charge_orders", "firestore", "Commit"),
]


@pytest.fixture(scope="module")
def settings(baked: object) -> Settings:
    return load(baked)  # type: ignore[arg-type]


def test_no_hop_is_without_faults(settings: Settings) -> None:
    found = cells(CALLS, settings)
    for call in CALLS:
        here = [cell for cell in found if (cell.hop.caller, cell.hop.callee, cell.hop.method) == _place(call)]
        columns = {cell.column for cell in here}
        assert {LOST, ANSWER_LOST, TWICE, AGAIN, LATE} <= columns
        if call.caller not in ("scheduler", "workflows"):
            assert {KILL_BEFORE, KILL_AFTER} <= columns


def test_of_a_fan_out_the_first_and_the_last_write_are_disturbed(settings: Settings) -> None:
    commits = {c.hop.nth for c in cells(CALLS, settings) if (c.hop.caller, c.hop.method) == ("charge_orders", "Commit")}
    assert commits == {1, 4}


def test_every_call_of_a_single_step_is_disturbed(settings: Settings) -> None:
    commits = {c.hop.nth for c in cells(CALLS, settings) if (c.hop.caller, c.hop.method) == ("proxy", "Commit")}
    assert commits == {1, 2}


def test_a_cell_is_found_by_its_name(settings: Settings) -> None:
    found = cells(CALLS, settings)
    assert len({cell.id for cell in found}) == len(found)
    assert named([found[3].id, f"{found[0].id}+{found[5].id}"], found)[1].cells == (found[0], found[5])
    with pytest.raises(KeyError):
        named(["nowhere/at/all"], found)


def test_combinations_are_equal_for_equal_seeds(settings: Settings) -> None:
    found = cells(CALLS, settings)
    assert combinations(found, 20, 7) == combinations(found, 20, 7)
    assert combinations(found, 20, 7) != combinations(found, 20, 8)
    assert {len(trouble.cells) for trouble in combinations(found, 50, 7)} == {2, 3}


def test_a_fault_that_outlasts_something_follows_the_settings(settings: Settings) -> None:
    slow = replace(settings, attempt_deadline=500)
    late = [cell for cell in cells(CALLS, slow) if cell.column == LATE and cell.hop.caller == "scheduler"]
    assert late[0].fault.seconds > 500


def _place(call: Call) -> tuple[str, str, str]:
    return call.caller, call.callee, call.method
