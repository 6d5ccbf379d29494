"""`--cloud`: the same commands by the way they take to Google Cloud, which servers here stand in for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import tools.operate.place as place_module
from tests.operate.office import Office
from tools.operate.errors import LOGIN
from tools.operate.naming import short
from tools.operate.place import Place
from tools.reach import Addresses

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def cloud(office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """No chain runs here, and gcloud knows who asks and has no lines."""
    there = Addresses(office.address, office.workflows.grpc_address)
    monkeypatch.setattr(place_module, "running", lambda state: None)
    monkeypatch.setattr(place_module, "Addresses", lambda: there)
    monkeypatch.setattr(Place, "now", lambda self: NOW)
    gcloud = tmp_path / "bin" / "gcloud"
    gcloud.parent.mkdir()
    gcloud.write_text('#!/bin/sh\n[ "$1" = config ] && echo ops@example.com || echo "[]"\n')
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gcloud.parent}:/bin:/usr/bin")
    return office


def test_a_slot_by_hand_is_the_schedulers_own_run(cloud: Office) -> None:
    run = cloud.slot(14)
    asked = cloud.op("run", "--cloud", "--slot", "2026-01-14T03:00:00+01:00", answer="n\n")
    assert asked.code == 130 and f"run {short(run.run_id)} of the slot" in asked.out and "NOTE" not in asked.out
    first = cloud.op("run", "--cloud", "--slot", "2026-01-14T02:00:00Z", "--yes", "--note", "it was lost")
    assert first.code == 0 and "succeeded: ./pipeline show" in first.out
    record = cloud.record(run.run_id)
    assert (record["kind"], record["by"]) == ("schedule", {"who": "ops@example.com", "why": "it was lost"})
    assert cloud.deliver(run) == run.run_id and cloud.ran.count("take") == 1
    again = cloud.op("run", "--cloud", "--slot", "2026-01-14T02:00:00Z", "--yes")
    assert "exists already" in again.out and cloud.ran.count("take") == 1
    shown = cloud.op("show", short(run.run_id), "--cloud")
    assert "https://console.cloud.google.com/workflows/workflow/europe-west1/" in shown.out
    assert "ops@example.com  it was lost" in shown.out


def test_a_key_is_one_run(cloud: Office) -> None:
    first = cloud.op("run", "--cloud", "--key", "monday", "--yes", "--format", "json").json
    again = cloud.op("run", "--cloud", "--key", "monday", "--yes", "--format", "json").json
    assert (first["by_us"], again["by_us"], first["execution"]) == (True, False, again["execution"])
    assert [run["key"] for run in cloud.op("runs", "--cloud", "--format", "json").json] == ["monday"]


def test_slots_that_are_none_are_said(cloud: Office) -> None:
    future = cloud.op("run", "--cloud", "--slot", "2026-01-16T02:00:00Z", "--yes")
    assert future.code == 1 and "still to come: the Scheduler delivers it" in future.err
    odd = cloud.op("run", "--cloud", "--slot", "2026-01-14T02:01:00Z", answer="n\n")
    assert "has no such slot" in odd.out
    assert cloud.op("run", "--cloud", "--slot", "noon").code == 2
    assert cloud.op("run", "--cloud", "--slot", "noon", "--key", "k").code == 2


def test_gaps_in_the_cloud(cloud: Office) -> None:
    found = cloud.op("gaps", "--cloud", "--since", "2d", "--backfill", "--yes")
    assert found.code == 0 and "2 slots: 2 missing" in found.out
    assert cloud.op("gaps", "--cloud", "--since", "2d").code == 0


def test_without_credentials_it_says_how_to_log_in(desk: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(desk.root / "no such file"))
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    got = desk.op("runs", "--cloud")
    assert (got.code, got.err) == (1, f"Error: {LOGIN}")
