"""What was logged of a run: on the laptop in .local/events.jsonl, in the cloud by Cloud Logging through gcloud.

In a Cloud Run job, where there is no gcloud, Cloud Logging's own API is asked as the job's account.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import google.auth
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from requests import RequestException

from tools.settings import Settings

Line = dict[str, Any]

LIMIT = 5000
"""Lines of one run that are read in the cloud."""

DUPLICATES = ("run.duplicate", "run.busy")


class Unread(Exception):  # noqa: N818
    """The log could not be read; the text says where a person finds it."""


def of_run(settings: Settings, events: Path | None, run_id: str) -> list[Line]:
    """The lines about a run, in order; `time` is seconds since the epoch. Raises Unread."""
    if events:
        return [line for line in _file(events, run_id) if line.get("run_id") == run_id]
    query = f'labels.run="{run_id[:63]}"'
    return [{**entry.get("jsonPayload", {}), "time": _seconds(entry)} for entry in _gcloud(settings, query)]


def duplicates(settings: Settings, events: Path | None, since: datetime | None) -> Counter[str]:
    """How many deliveries of each run were answered without doing anything. Raises Unread."""
    if events:
        lines: list[Line] = _file(events, '"run.')
    else:
        query = f'labels.pipeline="{settings.pipeline}" AND jsonPayload.event=("run.duplicate" OR "run.busy")'
        query += f' AND timestamp>="{since.isoformat()}"' if since else ""
        lines = [entry.get("jsonPayload", {}) for entry in _gcloud(settings, query)]
    return Counter(str(line["run_id"]) for line in lines if line.get("event") in DUPLICATES and line.get("run_id"))


def of_job(settings: Settings) -> list[dict[str, Any]]:
    """The entries of the audit log about the Scheduler job, in order. Raises Unread."""
    job = f"projects/{settings.project}/locations/{settings.region}/jobs/{settings.job}"
    query = f'protoPayload.serviceName="cloudscheduler.googleapis.com" AND protoPayload.resourceName="{job}"'
    return _gcloud(settings, query, days=400)


def link(settings: Settings, query: str) -> str:
    """Where a person reads the same in the console."""
    return f"https://console.cloud.google.com/logs/query;query={quote(query, safe='')}?project={settings.project}"


def _file(events: Path, text: str) -> list[Line]:
    """The events whose line has `text` in it; a line that is being written is left out."""
    found: list[Line] = []
    try:
        with events.open(encoding="utf-8") as file:
            for line in file:
                if text in line:
                    try:
                        found.append(json.loads(line))
                    except ValueError:
                        continue
    except OSError as error:
        raise Unread(f"{events}: {error.strerror}") from None
    return found


def _gcloud(settings: Settings, query: str, days: int | None = None) -> list[dict[str, Any]]:
    if os.environ.get("CLOUD_RUN_JOB"):
        return _api(settings, query, days or settings.retention_days + 2)
    where = link(settings, query)
    if not shutil.which("gcloud"):
        raise Unread(f"gcloud is not installed here; the log: {where}")
    words = ["gcloud", "logging", "read", query, f"--project={settings.project}", "--format=json", "--order=asc"]
    words += [f"--limit={LIMIT}", f"--freshness={days or settings.retention_days + 2}d", "--quiet"]
    asked = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if asked.returncode:
        said = " ".join(asked.stderr.split())[:200]
        need = "; roles/logging.viewer is needed" if "PERMISSION_DENIED" in said else ""
        raise Unread(f"gcloud logging read: {said}{need}; the log: {where}")
    try:
        found: list[dict[str, Any]] = json.loads(asked.stdout or "[]")
    except ValueError:
        raise Unread(f"gcloud logging read gave no JSON; the log: {where}") from None
    return found


def _api(settings: Settings, query: str, days: int) -> list[dict[str, Any]]:
    """As _gcloud, by `entries.list` of the Logging API, v2. A page may be empty and not be the last."""
    since = datetime.now(UTC) - timedelta(days=days)
    wanted = {
        "resourceNames": [f"projects/{settings.project}"],
        "filter": f'{query} AND timestamp>="{since.isoformat()}"',
        "orderBy": "timestamp asc",
        "pageSize": 1000,
    }
    found: list[dict[str, Any]] = []
    try:
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/logging.read"])
        session = AuthorizedSession(credentials)
        while len(found) < LIMIT:
            answer = session.post("https://logging.googleapis.com/v2/entries:list", json=wanted, timeout=60)
            if answer.status_code != 200:
                need = "; roles/logging.viewer is needed" if answer.status_code == 403 else ""
                raise Unread(f"Cloud Logging answered {answer.status_code}{need}; the log: {link(settings, query)}")
            page = answer.json()
            found += page.get("entries", [])
            if not page.get("nextPageToken"):
                break
            wanted["pageToken"] = page["nextPageToken"]
    except (GoogleAuthError, RequestException) as error:
        raise Unread(f"Cloud Logging: {' '.join(str(error).split())[:200]}; the log: {link(settings, query)}") from None
    return found[:LIMIT]


def _seconds(entry: dict[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(entry["timestamp"]).replace("Z", "+00:00")).timestamp()
    except (KeyError, ValueError):
        return 0.0
