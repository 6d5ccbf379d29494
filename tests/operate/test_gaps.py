"""`gaps` and `backfill` over a project's runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from exactly_once.errors import Permanent
from exactly_once.identity import instant_text
from exactly_once.log import Log
from tests.operate.office import Office
from tools.operate import schedule
from tools.operate.naming import short
from tools.operate.place import Place

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "now", lambda self: NOW)


def test_what_is_missing_is_found_and_filled_in_order(office: Office) -> None:
    for day in (9, 11, 14):
        office.deliver(office.slot(day))
    office.ran.clear()
    found = office.op("gaps", "--format", "json")
    assert found.code == 3
    assert [slot["slot"][8:10] for slot in found.json["wrong"]] == ["10", "12", "13", "15"]
    assert found.json["outcomes"] == {"succeeded": 3, "missing": 4}
    order: list[str] = []
    office.bodies["take"] = lambda run, payload: order.append(instant_text(run.slot))
    shown = office.op("gaps", "--backfill", "--yes", "--note", "outage")
    assert shown.code == 0, shown.err
    assert [slot[8:10] for slot in order] == ["10", "12", "13", "15"]
    record = office.record(office.slot(12).run_id)
    assert record["by"]["why"] == "outage" and record["kind"] == "schedule"
    assert office.op("gaps").code == 0
    assert office.op("backfill", "--from", "2026-01-09", "--to", "2026-01-15", "--yes").out.strip() == (
        "all 6 slots have run"
    )
    again = office.launcher().deliver(office.slot(12), Log(lambda line: None))  # what a late retry does
    assert not again.by_us and len(order) == 4


def test_a_run_that_failed_is_a_gap_until_it_is_resumed(office: Office) -> None:
    for day in range(9, 16):
        if day == 13:
            office.bodies["report"] = _fails
        office.deliver(office.slot(day))
        office.bodies.clear()
    found = office.op("gaps")
    assert found.code == 3 and "failed" in found.out and "6 succeeded" in found.out
    run = short(office.slot(13).run_id)
    filled = office.op("backfill", "--from", "2026-01-09", "--to", "2026-01-15", "--yes")
    assert "1 slots ran and failed: ./pipeline resume --failed" in filled.out
    assert office.op("resolve", run, "report", "--redo", "--note", "n", "--yes").code == 0
    assert office.op("resume", "--failed", "--since", "2026-01-01", "--yes").code == 0
    office.ended(office.record(office.slot(13).run_id)["execution"])
    assert office.op("gaps").code == 0


def _fails(run: Any, payload: Any) -> Any:
    raise Permanent("no")


def test_a_backfill_stops_at_the_first_run_that_fails(office: Office) -> None:
    office.bodies["take"] = lambda run, payload: _fails(run, payload) if run.slot.day == 11 else {}
    stopped = office.op("backfill", "--from", "2026-01-10", "--to", "2026-01-14", "--yes")
    assert stopped.code == 1 and "failed: stopped, 2 slots left" in stopped.err
    assert office.ran.count("report") == 1
    for words, said in (
        (("--from", "2026-01-14", "--to", "2026-01-10"), "--from has to lie before --to"),
        (("--from", "2026-01-14", "--to", "2026-02-10"), "--to lies in the future"),
        (("--from", "yesterday", "--to", "2026-01-10"), "'yesterday' is no time"),
    ):
        refused = office.op("backfill", *words, "--yes")
        assert refused.code == 1 and said in refused.err


def test_the_history_of_deployments_says_what_was_due(office: Office) -> None:
    """Deployed on the 10th, paused from the 12th to the 14th."""
    settings, noon = office.settings, datetime(2026, 1, 10, 12, tzinfo=UTC)
    assert schedule.record(office.client, settings, noon, False, "ops")
    assert not schedule.record(office.client, settings, noon + timedelta(hours=1), False, "ops")
    assert schedule.record(office.client, settings, noon + timedelta(days=2), True, "ops")
    assert schedule.record(office.client, settings, noon + timedelta(days=4), False, "ops")
    found = office.op("gaps", "--format", "json").json
    assert [slot["slot"][8:10] for slot in found["wrong"]] == ["11", "12", "15"]
    filled = office.op("backfill", "--from", "2026-01-10", "--to", "2026-01-15", "--yes")
    assert filled.code == 0 and office.ran.count("report") == 5  # the pause, and before the first deploy
    noted = office.op("deployed", "--paused", "--yes")
    assert noted.out.splitlines()[-1] == "noted" and office.op("deployed", "--paused", "--yes").out.endswith(
        "unchanged\n"
    )


def test_beyond_the_retention_nothing_is_said_to_be_missing(desk: Office) -> None:
    found = desk.op("gaps", "--since", "2025-01-01")
    assert "records are kept for 90 days: looking from 2025-10-17 12:00Z on" in found.out and "90 missing" in found.out


def test_a_slot_whose_retries_may_still_come_is_due(desk: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "now", lambda self: datetime(2026, 1, 15, 2, 30, tzinfo=UTC))
    found = desk.op("gaps", "--since", "12h", "--format", "json")
    assert found.code == 0 and found.json["outcomes"] == {"due": 1}
