"""`runs` and `show` over a long history, and errors as people meet them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions as api
from google.auth.exceptions import DefaultCredentialsError, RefreshError

from exactly_once.errors import Permanent, Unreachable
from exactly_once.identity import manual_run, run_path, step_path
from exactly_once.log import Log
from tests.operate.office import Office
from tools.errors import UserError
from tools.operate.errors import LOGIN, told, words
from tools.operate.naming import instant, short


def test_a_history_of_2000_runs_is_listed_searched_and_paged(office: Office) -> None:
    office.bodies["charge"] = _one_fails
    failed = office.deliver(office.slot(1))
    office.bodies.clear()
    fine = office.deliver(office.slot(2))
    by_hand = manual_run(office.settings.pipeline, office.settings.scope, "after the outage")
    office.deliver(by_hand)
    old = office.history(2000)
    office.launcher().deliver(office.slot(2), Log(office.write))

    page = office.op("runs", "--format", "json", "--limit", "4").json
    assert [run["run_id"] for run in page] == [by_hand.run_id, fine, failed, old[0]]
    assert [run["status"] for run in page] == ["succeeded", "succeeded", "failed", "gone"]
    assert [run["duplicates"] for run in page] == [0, 1, 0, 0]
    assert page[2]["held"] == ["charge y"] and page[2]["seconds"] > 0
    text = office.op("runs", "--limit", "3")
    assert "the latest 3; older ones: --until 2026-01-01T02:00:00Z" in text.out
    assert short(fine) in text.out and "after the outage" in text.out
    older = office.op("runs", "--until", "2026-01-01T02:00:00Z", "--limit", "1", "--format", "json").json
    assert [run["run_id"] for run in older] == [old[0]]
    assert [run["run_id"] for run in office.op("runs", "--failed", "--format", "json").json] == [failed]
    everything = office.op("runs", "--all", "--format", "json").json
    assert len(everything) == 2003 and everything[-1]["run_id"] == old[-1]
    assert len(office.op("runs", "--since", "2025-12-30", "--status", "gone", "--format", "json").json) == 2
    assert "no runs that are queued" in office.op("runs", "--status", "queued").out

    # names of runs: the first digits, or the slot; four digits of 2,003 ids may be several
    assert office.op("show", "2026-01-01T02:00:00Z", "--format", "json").json["run_id"] == failed
    assert office.op("show", "2026-01-01T03:00:00+01:00", "--format", "json").json["run_id"] == failed
    prefixes = sorted(run["run_id"][:4] for run in everything)
    twice = next(a for a, b in pairwise(prefixes) if a == b)
    ambiguous = office.op("show", twice)
    assert ambiguous.code == 1 and f"{twice} is ambiguous" in ambiguous.err and "more digits" in ambiguous.err


def _one_fails(run: Any, payload: Any) -> Any:
    if run.item == "y":
        raise Permanent("card refused")
    return {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("abc", "is no run id: give at least 4 of its digits"),
        ("xyzw", "is no run id"),
        ("0000abcd", "there is no run 0000abcd: ./pipeline runs lists them; records are kept for 92 days"),
        ("f" * 64, "there is no run ffff"),
        ("2026-01-05T02:00:00Z", "the slot 2026-01-05T02:00:00Z has no run: ./pipeline gaps"),
        ("2026-01-05", "is neither a run id nor a slot"),
    ],
)
def test_a_run_that_is_not_there(desk: Office, name: str, said: str) -> None:
    for command in (["show", name], ["cancel", name, "--note", "n"], ["resume", name]):
        got = desk.op(*command)
        assert got.code == 1 and said in got.err


def test_a_step_that_is_not_there(desk: Office) -> None:
    run_id = desk.deliver(desk.slot(1))
    for where, said in (
        (["nothing"], "has no record of step nothing; its steps are charge, report, take"),
        (["charge"], "charge has 3 items: name one, such as"),
        (["charge", "w"], "has no record of item 'w' of charge"),
    ):
        got = desk.op("resolve", short(run_id), *where, "--redo", "--note", "n")
        assert got.code == 1 and said in got.err
    for step in ("take", "report", *[f"charge {item}" for item in "xyz"]):
        name, _, item = step.partition(" ")
        desk.client.document(step_path(desk.settings.pipeline, run_id, name, item or None)).delete()
    got = desk.op("resolve", short(run_id), "take", "--redo", "--note", "n")
    assert got.code == 1 and "removed after their retention?" in got.err
    assert "removed after their retention" in desk.op("show", short(run_id)).out


def test_wrong_usage(desk: Office) -> None:
    for words_, said in (
        (["resume"], "name runs, or give --failed"),
        (["resume", "abcd", "--since", "7d"], "--since goes with --failed"),
        (["resolve", "abcd", "take", "--note", "n"], "give one of --done and --redo"),
        (["resolve", "abcd", "take", "--redo", "--result", "1", "--note", "n"], "--result goes with --done"),
    ):
        got = desk.op(*words_)
        assert got.code == 2 and said in got.err
    bad = desk.op("resolve", "abcd", "take", "--done", "--result", "{", "--note", "n")
    assert bad.code == 1 and "--result is no JSON" in bad.err


def test_a_receipt_has_who_holds_what_and_the_audit(office: Office) -> None:
    run_id = office.deliver(office.slot(1))
    document = office.client.document(step_path(office.settings.pipeline, run_id, "report"))
    document.update({"status": "in_progress", "lease_seconds": 3600.0, "claimed_at": datetime.now(UTC)})
    shown = office.op("show", short(run_id), "--format", "json").json
    steps = {(step["step"], step["item"]): step for step in shown["steps"]}
    assert set(steps) == {("take", None), ("report", None), ("charge", "x"), ("charge", "y"), ("charge", "z")}
    assert 3500 < steps["report", None]["lease_left"] <= 3600.5
    assert steps["charge", "x"]["lease_left"] is None
    assert shown["events"]["charge"]["step.completed"] == 3
    text = office.op("show", short(run_id)).out
    assert "s left)" in text and run_id in text and "succeeded" in text
    refused = office.op("resolve", short(run_id), "report", "--redo", "--note", "n", "--yes")
    assert refused.code == 1 and "its lease has" in refused.err


def test_a_thousand_items_are_shown(desk: Office) -> None:
    run_id = desk.deliver(desk.slot(1))
    path = desk.client.document(run_path(desk.settings.pipeline, run_id))
    for start in range(0, 1000, 250):
        batch = desk.client.batch()
        for number in range(start, start + 250):
            fields = {"status": "completed", "step": "charge", "item": f"order {number}", "attempt_id": "a"}
            where = path.collection(f"{desk.settings.pipeline}_steps").document(f"charge:{number}")
            batch.set(where, {**fields, "attempts": 1, "claimed_at": datetime.now(UTC)})
        batch.commit()
    shown = desk.op("show", short(run_id))
    assert "200 of 1005: 1005 completed; --all" in shown.out
    assert len(desk.op("show", short(run_id), "--all", "--format", "json").json["steps"]) == 1005


def _caused(error: Exception) -> Unreachable:
    unreachable = Unreachable(f"Firestore: {type(error).__name__}: {error}")
    unreachable.__cause__ = error
    return unreachable


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RefreshError("Reauthentication is needed"), LOGIN),
        (DefaultCredentialsError("none found"), LOGIN),
        (_caused(api.ServiceUnavailable("Getting metadata from plugin failed with error: invalid_grant")), LOGIN),
        (_caused(api.PermissionDenied("Missing or insufficient permissions.")), "ask for roles/datastore.viewer"),
        (api.PermissionDenied("workflowexecutions.executions.cancel denied"), "roles/workflows.invoker"),
        (_caused(api.NotFound("The database p does not exist")), "is it deployed, and are PROJECT"),
        (_caused(api.DeadlineExceeded("Deadline Exceeded")), "Firestore does not answer: try again"),
    ],
)
def test_what_google_answers_is_said_in_words_of_what_to_do(error: Exception, said: str) -> None:
    with pytest.raises(UserError) as caught, told():
        raise error
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert words(error) == str(caught.value)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("2026-01-14", timedelta(days=1)),
        ("2026-01-15T01:00:00+01:00", timedelta(0)),
    ],
)
def test_times_as_people_write_them(text: str, moment: timedelta) -> None:
    now = datetime(2026, 1, 15, tzinfo=UTC)
    assert instant(text, now) == now - moment


def test_without_a_chain_or_the_cloud_there_is_nothing_to_operate(
    desk: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tools.operate.place as place_module

    monkeypatch.setattr(place_module, "running", lambda state: None)
    got = desk.op("runs")
    assert got.code == 1 and "start it with ./pipeline local, or add --cloud" in got.err


def test_the_log_in_the_cloud_is_read_by_gcloud_or_linked(
    desk: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.operate import history

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(history.Unread, match=r"console.cloud.google.com/logs/query;query=labels.run"):
        history.of_run(desk.settings, None, "ab" * 32)
    gcloud = tmp_path / "gcloud"
    entry = '[{"timestamp": "2026-01-15T02:00:00Z", "jsonPayload": {"event": "step.failed", "step": "take"}}]'
    gcloud.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/said\necho '{entry}'\n")
    gcloud.chmod(0o755)
    lines = history.of_run(desk.settings, None, "ab" * 32)
    assert [(line["event"], line["time"]) for line in lines] == [("step.failed", 1768442400.0)]
    assert f'labels.run="{"ab" * 32}"'[:74] in (tmp_path / "said").read_text()
    gcloud.write_text("#!/bin/sh\necho 'PERMISSION_DENIED: no' >&2; exit 1\n")
    with pytest.raises(history.Unread, match=r"roles/logging.viewer is needed"):
        history.of_run(desk.settings, None, "ab" * 32)
