"""BigQuery's jobs API, as far as starting a job once and looking at it needs: see the package for the rest.

    POST /bigquery/v2/projects/P/jobs            409 for a job id that has been used, as BigQuery does
    GET  /bigquery/v2/projects/P/jobs/ID
    GET  /bigquery/v2/projects/P/queries/ID      no rows

No SQL is carried out: a job is done as soon as it is there. The jobs are the ledger's, so they outlast a restart.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tools.emulators.clock import Clock
from tools.emulators.receivers import Ledger

NAME = "bigquery"


class BigQuery:
    """One for all projects and datasets."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    def answer(self, step: str, request: Request, path: str, body: bytes) -> Response:
        match request.method, path.strip("/").split("/"):
            case "POST", ["bigquery", "v2", "projects", project, "jobs"]:
                return self._insert(step, project, body)
            case "GET", ["bigquery", "v2", "projects", project, "jobs", job]:
                return self._get(project, job)
            case "GET", ["bigquery", "v2", "projects", project, "queries", job]:
                return self._results(project, job)
        return _error(501, "notImplemented", f"the stand-in for BigQuery does not know {request.method} {path}")

    def _insert(self, step: str, project: str, body: bytes) -> Response:
        wanted = json.loads(body)
        job = wanted.get("jobReference", {}).get("jobId")
        if not job:
            return _error(400, "invalid", "the stand-in for BigQuery takes jobs with an id only")
        known = self._ledger.find(NAME, f"{project}.{job}") is not None
        configuration = json.dumps(wanted.get("configuration", {}), sort_keys=True).encode()
        self._ledger.record(self._clock.now(), NAME, step, "POST", "/jobs", f"{project}.{job}", configuration)
        if known:
            return _error(409, "duplicate", f"Already Exists: Job {project}:US.{job}")
        return self._get(project, job)

    def _get(self, project: str, job: str) -> Response:
        row = self._ledger.find(NAME, f"{project}.{job}")
        if row is None:
            return _error(404, "notFound", f"Not found: Job {project}:{job}")
        about: dict[str, Any] = {
            "kind": "bigquery#job",
            "id": f"{project}:US.{job}",
            "jobReference": {"projectId": project, "jobId": job, "location": "US"},
            "configuration": row["body"] or {},
            "status": {"state": "DONE"},
            "statistics": {"query": {"totalBytesProcessed": "0"}},
        }
        return JSONResponse(about)

    def _results(self, project: str, job: str) -> Response:
        if self._ledger.find(NAME, f"{project}.{job}") is None:
            return _error(404, "notFound", f"Not found: Job {project}:{job}")
        return JSONResponse(
            {
                "kind": "bigquery#getQueryResultsResponse",
                "jobReference": {"projectId": project, "jobId": job, "location": "US"},
                "schema": {"fields": []},
                "jobComplete": True,
                "totalRows": "0",
            }
        )


def _error(status: int, reason: str, message: str) -> Response:
    error = {"code": status, "message": message, "errors": [{"message": message, "reason": reason}]}
    return JSONResponse({"error": error}, status_code=status)
