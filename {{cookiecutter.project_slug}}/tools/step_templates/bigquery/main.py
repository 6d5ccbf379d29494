"""Runs a query job in BigQuery that writes a table, once: the job's id is made of the key, and is taken once only.

A repeat finds the first job and waits for it. A job writes all of its rows or none, so one that has failed has
surely written nothing: then, and only then, the next id in the key's row of ids is tried, by every attempt alike.

Input: any JSON. Result: ``{"job": id of the job that has written}``.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, cast

from google.api_core.exceptions import BadRequest, Conflict, Forbidden, NotFound, TooManyRequests
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from exactly_once import Permanent, Retry, Run, step

CALL_SECONDS = 30
JOB_SECONDS = 240
"""For one call, and to wait for the job. Both below the lease; a longer job is waited for by the next attempt."""

AGAIN = bigquery.DEFAULT_RETRY.with_timeout(CALL_SECONDS)
"""A call that is sent again finds its own job: the id is the same."""

JOBS = 5
"""Failed jobs of one key after which a person is asked."""

WRITE = bigquery.WriteDisposition.WRITE_APPEND
PARTITION = ""
"""To overwrite instead, which makes even a `redo` by hand harmless: WRITE_TRUNCATE and the partition of the slot, such
as "%Y%m%d", in a table that is partitioned by the day and written by one slot a day."""

QUERY = "SELECT @run_id AS run_id, @slot AS slot, PARSE_JSON(@input) AS input"

PASSING = ("backendError", "internalError", "rateLimitExceeded", "quotaExceeded", "resourcesExceeded", "stopped")
"""Reasons of a failed job that another try may not meet."""


@cache
def client() -> bigquery.Client:
    """The library finds a stand-in by BIGQUERY_EMULATOR_HOST, but would still ask for credentials."""
    anonymous = AnonymousCredentials() if os.environ.get("BIGQUERY_EMULATOR_HOST") else None
    return bigquery.Client(project=os.environ["GOOGLE_CLOUD_PROJECT"], credentials=anonymous)


@step(on_unknown="retry")
def main(run: Run, payload: Any) -> dict[str, str]:
    """Raises Permanent for a query that BigQuery refuses, Retry where surely nothing was written."""
    for number in range(1, JOBS + 1):
        job_id = f"{run.step}-{run.idempotency_key}-{number}"
        job = find(job_id) if run.attempt > 1 or number > 1 else None
        job = job or begin(job_id, run, payload)
        if succeeded(job):
            return {"job": job.job_id}
    raise Permanent(f"{JOBS} jobs have failed, the last one is {job_id}")


def begin(job_id: str, run: Run, payload: Any) -> bigquery.QueryJob:
    """Start the job, or find the one that has the id already."""
    parameters = [
        bigquery.ScalarQueryParameter("run_id", "STRING", run.run_id),
        bigquery.ScalarQueryParameter("slot", "TIMESTAMP", run.slot),
        bigquery.ScalarQueryParameter("input", "STRING", json.dumps(payload)),
    ]
    config = bigquery.QueryJobConfig(destination=table(run), write_disposition=WRITE, query_parameters=parameters)
    try:
        return client().query(QUERY, config, job_id=job_id, job_retry=None, retry=AGAIN, timeout=CALL_SECONDS)
    except Conflict:
        return look(job_id)
    except TooManyRequests as error:
        raise Retry(f"BigQuery asks for patience: {error.message}") from error
    except (BadRequest, Forbidden, NotFound) as error:
        raise Permanent(f"BigQuery refuses the job: {error.message}") from error


def find(job_id: str) -> bigquery.QueryJob | None:
    """The job that an earlier attempt may have started."""
    try:
        return look(job_id)
    except NotFound:
        return None


def look(job_id: str) -> bigquery.QueryJob:
    return cast(bigquery.QueryJob, client().get_job(job_id, retry=AGAIN, timeout=CALL_SECONDS))


def succeeded(job: bigquery.QueryJob) -> bool:
    """Wait for the job's end. False if it has failed in a way that may pass; raises Permanent for any other."""
    try:
        job.result(timeout=JOB_SECONDS, job_retry=None)
    except Exception:
        job.reload(retry=AGAIN, timeout=CALL_SECONDS)
        if job.state != "DONE" or not job.error_result:
            raise  # it still runs, or we could not look: unknown, the next attempt finds it
    if not job.error_result:
        return True
    if job.error_result.get("reason") not in PASSING:
        raise Permanent(f"job {job.job_id} has failed: {job.error_result.get('message')}")
    return False


def table(run: Run) -> str:
    """The setting <STEP>_TABLE, with the slot's partition if `PARTITION` is set. Raises Retry while it is empty."""
    setting = f"{os.environ['STEP'].upper()}_TABLE"
    name = os.environ.get(setting)
    if not name:
        raise Retry(f"{setting} is empty: set it in settings.env and deploy again")
    if not PARTITION:
        return name
    if run.slot is None:
        raise Permanent("a run without a slot has no partition to overwrite")
    return f"{name}${run.slot.strftime(PARTITION)}"
