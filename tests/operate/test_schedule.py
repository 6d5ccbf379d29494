"""Which slots were due: time zones, changes of the clock, pauses, and changes of the cron."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.operate.office import Office
from tools.emulators.scheduler import ScheduleError
from tools.operate.history import of_job
from tools.operate.schedule import Demand, Deploy, changes, demanded, merged

START = datetime(2026, 1, 1, tzinfo=UTC)


def deploy(cron: str = "0 2 * * *", zone: str = "Etc/UTC", at: datetime = START, paused: bool = False) -> Deploy:
    return Deploy(at, cron, zone, "job", paused)


def due(deploys: list[Deploy], since: str, until: str) -> list[str]:
    found = demanded(deploys, datetime.fromisoformat(since), datetime.fromisoformat(until))
    return [f"{one.slot:%m-%dT%H:%M}{'?' if one.uncertain else ''}" for one in found]


def test_both_ends_count_as_they_are_written() -> None:
    assert due([deploy()], "2026-01-02T02:00:00Z", "2026-01-04T02:00:00Z") == ["01-02T02:00", "01-03T02:00"]
    assert due([deploy()], "2026-01-02T02:00:01Z", "2026-01-04T02:00:01Z") == ["01-03T02:00", "01-04T02:00"]


def test_nothing_is_due_before_the_first_deploy() -> None:
    assert due([deploy(at=START + timedelta(days=1))], "2025-12-30T00:00:00Z", "2026-01-03T00:00:00Z") == [
        "01-02T02:00"
    ]


def test_the_wall_clock_of_the_time_zone_counts() -> None:
    slots = due([deploy("30 1 * * *", "America/New_York")], "2026-03-06T00:00:00Z", "2026-03-10T00:00:00Z")
    assert slots == ["03-06T06:30", "03-07T06:30", "03-08T06:30", "03-09T05:30"]


@pytest.mark.parametrize(
    ("cron", "since", "until", "slots"),
    [
        # 02:00 to 03:00 does not exist in Berlin on March 29th; Scheduler may leave the slot out or move it
        ("30 2 * * *", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z", ["03-28T01:30", "03-29T01:00?", "03-30T00:30"]),
        # 02:30 comes twice on October 25th: no one knows which
        ("30 2 * * *", "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z", ["10-24T00:30", "10-25T00:30?", "10-26T01:30"]),
        # every hour goes on through both
        ("0 * * * *", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z", ["03-29T00:00", "03-29T01:00", "03-29T02:00"]),
        ("0 * * * *", "2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z", ["10-25T00:00", "10-25T01:00", "10-25T02:00"]),
    ],
)
def test_changes_of_the_clock(cron: str, since: str, until: str, slots: list[str]) -> None:
    assert due([deploy(cron, "Europe/Berlin")], since, until) == slots


def test_a_change_of_the_cron_and_a_pause_hold_from_their_time_on() -> None:
    deploys = [
        deploy(),
        deploy("0 */6 * * *", at=datetime(2026, 1, 3, 3, tzinfo=UTC)),
        deploy("0 */6 * * *", at=datetime(2026, 1, 3, 13, tzinfo=UTC), paused=True),
        deploy("0 */6 * * *", at=datetime(2026, 1, 4, 12, tzinfo=UTC)),
    ]
    assert due(deploys, "2026-01-02T00:00:00Z", "2026-01-04T19:00:00Z") == [
        "01-02T02:00",
        "01-03T02:00",
        "01-03T06:00",
        "01-03T12:00",
        "01-04T12:00",
        "01-04T18:00",
    ]


def test_a_schedule_that_is_none_is_said() -> None:
    with pytest.raises(ScheduleError, match="not unix-cron"):
        list(demanded([deploy("every 5 minutes")], START, START + timedelta(days=1)))


def test_a_demand_names_the_cron_that_was_in_force() -> None:
    one = next(demanded([deploy()], START, START + timedelta(days=1)))
    assert one == Demand(datetime(2026, 1, 1, 2, tzinfo=UTC), deploy())


JOB = "projects/test-project/locations/europe-west1/jobs/job"


def entry(day: int, method: str, code: int = 0, **job: str) -> dict[str, Any]:
    """As Cloud Logging has it."""
    return {
        "timestamp": f"2026-01-{day:02}T12:00:00.123456789Z"[:27] + "Z",
        "protoPayload": {
            "serviceName": "cloudscheduler.googleapis.com",
            "methodName": f"google.cloud.scheduler.v1.CloudScheduler.{method}",
            "resourceName": JOB,
            "request": {"job": {"name": JOB, **job}} if job else {"name": JOB},
            **({"status": {"code": code}} if code else {}),
        },
    }


def merge(desk: Office, entries: list[dict[str, Any]], known: list[Deploy], until: str) -> list[str]:
    return due(merged(desk.settings, known, list(changes(entries)), START), "2026-01-01T00:00:00Z", until)


def test_the_audit_log_has_pauses_and_changes_of_the_cron(desk: Office) -> None:
    entries = [
        entry(2, "CreateJob", schedule="0 3 * * *", timeZone="Etc/UTC"),
        entry(3, "RunJob"),
        entry(4, "PauseJob"),
        entry(5, "UpdateJob", code=7, schedule="* * * * *"),
        entry(6, "ResumeJob"),
        entry(7, "UpdateJob", schedule="0 4 * * *"),
    ]
    assert merge(desk, entries, [], "2026-01-10T00:00:00Z") == [
        "01-03T03:00",
        "01-04T03:00",
        "01-07T03:00",
        "01-08T04:00",
        "01-09T04:00",
    ]


def test_before_what_the_audit_log_knows_the_settings_count(desk: Office) -> None:
    assert merge(desk, [entry(3, "PauseJob")], [], "2026-01-10T00:00:00Z") == [
        "01-01T02:00",
        "01-02T02:00",
        "01-03T02:00",
    ]


def test_a_note_and_the_audit_log_are_one_history(desk: Office) -> None:
    note = deploy("0 5 * * *", at=datetime(2026, 1, 2, 0, tzinfo=UTC))
    found = merge(desk, [entry(4, "UpdateJob", schedule="0 6 * * *")], [note], "2026-01-06T00:00:00Z")
    assert found == ["01-02T05:00", "01-03T05:00", "01-04T05:00", "01-05T06:00"]


def test_the_audit_log_is_asked_for_the_job(desk: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\ncat {tmp_path}/entries\n')
    gcloud.chmod(0o755)
    (tmp_path / "entries").write_text(json.dumps([entry(3, "PauseJob")]))
    assert [change.paused for change in changes(of_job(desk.settings))] == [True]
    said = (tmp_path / "said").read_text()
    assert f'resourceName="projects/test-project/locations/europe-west1/jobs/{desk.settings.job}"' in said
    assert "--freshness=400d" in said


def test_in_a_cloud_run_job_the_log_is_asked_without_gcloud(
    desk: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools.operate import history

    pages = [(200, {"nextPageToken": "2"}), (200, {"entries": [entry(3, "PauseJob")]}), (403, {}), (500, {})]
    asked: list[dict[str, Any]] = []

    class Session:
        def __init__(self, credentials: object) -> None: ...

        def post(self, url: str, json: dict[str, Any], timeout: float) -> Any:
            assert url == "https://logging.googleapis.com/v2/entries:list"
            asked.append(dict(json))
            status, page = pages.pop(0)
            return SimpleNamespace(status_code=status, json=lambda: page)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CLOUD_RUN_JOB", "shop-gaps")
    monkeypatch.setattr(history, "AuthorizedSession", Session)
    monkeypatch.setattr("google.auth.default", lambda scopes: (None, None))
    assert [change.paused for change in changes(of_job(desk.settings))] == [True]
    assert [one.get("pageToken") for one in asked] == [None, "2"]
    assert asked[0]["resourceNames"] == ["projects/test-project"]
    assert f'/jobs/{desk.settings.job}" AND timestamp>="' in asked[0]["filter"]
    with pytest.raises(history.Unread, match=r"answered 403; roles/logging.viewer is needed; the log: https://"):
        of_job(desk.settings)
    with pytest.raises(history.Unread, match=r"answered 500; the log: https://"):
        of_job(desk.settings)
