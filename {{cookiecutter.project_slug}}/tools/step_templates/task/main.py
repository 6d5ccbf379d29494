"""Puts a task on a Cloud Tasks queue, once: its name is made of the key, and a queue takes a name once.

Input: any JSON. Result: ``{"task": the task's full name}``.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

import grpc
from google.api_core.exceptions import AlreadyExists, InvalidArgument, NotFound, PermissionDenied, ResourceExhausted
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcTransport

from exactly_once import Permanent, Retry, Run, step

SECONDS = 20
"""For the one call; far below the lease."""


@cache
def client() -> tasks_v2.CloudTasksClient:
    """On a laptop the client of the stand-in, which speaks without encryption."""
    host = os.environ.get("CLOUD_TASKS_EMULATOR_HOST")
    if host:
        return tasks_v2.CloudTasksClient(transport=CloudTasksGrpcTransport(channel=grpc.insecure_channel(host)))
    return tasks_v2.CloudTasksClient()


@step(on_unknown="retry")
def main(run: Run, payload: Any) -> dict[str, str]:
    """Raises Permanent where the queue refuses the task for good."""
    queue = setting("QUEUE")
    name = f"{queue}/tasks/{run.idempotency_key}"
    try:
        client().create_task(parent=queue, task=task(name, run, payload), timeout=SECONDS, retry=None)
    except AlreadyExists:
        pass  # an earlier attempt has made it
    except ResourceExhausted as error:
        raise Retry(f"Cloud Tasks asks for patience: {error.message}") from error
    except (InvalidArgument, NotFound, PermissionDenied) as error:
        raise Permanent(f"Cloud Tasks refuses: {error.message}") from error
    return {"task": name}


def task(name: str, run: Run, payload: Any) -> tasks_v2.Task:
    """A POST to <STEP>_URL. A task is delivered at least once: the key goes along for the receiver to recognise."""
    body = {"run_id": run.run_id, "slot": run.slot.isoformat() if run.slot else None, "input": payload}
    url, account = setting("URL"), os.environ.get(f"{os.environ['STEP'].upper()}_ACCOUNT")
    request = tasks_v2.HttpRequest(
        url=url,
        http_method=tasks_v2.HttpMethod.POST,
        headers={"Content-Type": "application/json", "Idempotency-Key": run.idempotency_key},
        body=json.dumps(body).encode(),
    )
    if account:
        request.oidc_token = tasks_v2.OidcToken(service_account_email=account, audience=url)
    return tasks_v2.Task(name=name, http_request=request)


def setting(what: str) -> str:
    """The setting <STEP>_<what>. Raises Retry while it is empty."""
    name = f"{os.environ['STEP'].upper()}_{what}"
    if not os.environ.get(name):
        raise Retry(f"{name} is empty: set it in settings.env and deploy again")
    return os.environ[name]
