"""Executions of the workflow. The only module that imports the Workflows client.

WORKFLOWS_EMULATOR_HOST (host:port) leads it to an emulator, without encryption.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping

import grpc
from google.api_core import exceptions as api
from google.auth.exceptions import GoogleAuthError
from google.cloud.workflows import executions_v1
from google.cloud.workflows.executions_v1.services.executions.transports import ExecutionsGrpcTransport

from .identity import RunContext
from .launching import StartError

FIND_SECONDS = 10.0
START_SECONDS = 20.0

LOOK_SECONDS = 3.0
"""For one question of the overlap policy: five fit into the proxy's time-out, beside claim, start and record."""

LABEL_LENGTH = 63
"""Characters of a label's value; a run id has 64. The 252 bits that are left tell runs apart as well."""

PAGES = 10
"""Pages of a listing that are read at most. Executions come newest first, a hundred a page: more than start while
Scheduler retries one slot."""

Execution = executions_v1.Execution

_State = Execution.State

_OPEN = (_State.ACTIVE, _State.QUEUED, _State.STATE_UNSPECIFIED)
"""Has not ended, as far as this client can tell."""

_PREFERRED = (*_OPEN, _State.SUCCEEDED)
"""Of several executions of one run the one to adopt: at work, waiting, done, any other."""


class WorkflowsStarter:
    """`Starter` on one workflow, named `projects/P/locations/R/workflows/W`. Each RPC is sent once."""

    def __init__(self, workflow: str, environ: Mapping[str, str] = os.environ) -> None:
        """Raises StartError when there are no credentials."""
        self.workflow = workflow
        emulator = environ.get("WORKFLOWS_EMULATOR_HOST")
        try:
            if emulator:
                channel = grpc.insecure_channel(emulator, options=[("grpc.max_receive_message_length", -1)])
                self._client = executions_v1.ExecutionsClient(transport=ExecutionsGrpcTransport(channel=channel))
            else:
                self._client = executions_v1.ExecutionsClient()
        except GoogleAuthError as error:
            raise StartError(f"no credentials for Workflows: {error}") from error

    def find(self, run: RunContext) -> str | None:
        """The labels decide, as they are listed: what the filter leaves out only saves reading.

        The reference names `label` as a field to filter by and shows no example, so a service that refuses this filter
        is asked for its newest executions without one. What lies beyond `PAGES` is not seen: then a second execution of
        the run is started, whose steps replay.
        """
        label = run.run_id[:LABEL_LENGTH]
        end = time.monotonic() + FIND_SECONDS
        try:
            listed = list(self._listed(end, filter=f'labels.run="{label}"', view=executions_v1.ExecutionView.FULL))
        except api.InvalidArgument:
            try:
                listed = list(self._listed(end, view=executions_v1.ExecutionView.FULL))
            except api.GoogleAPIError as error:
                raise _said(error) from error
        except api.GoogleAPIError as error:
            raise _said(error) from error
        found = [execution for execution in listed if execution.labels.get("run") == label]
        return str(min(found, key=_preference).name) if found else None

    def at_work(self) -> str | None:
        """The name of an execution of the workflow that has not ended, if the listing shows one. Raises StartError."""
        for state in ("ACTIVE", "QUEUED"):
            try:
                found = next(self._listed(time.monotonic() + LOOK_SECONDS, filter=f'state="{state}"'), None)
            except api.GoogleAPIError as error:
                raise _said(error) from error
            if found:
                return str(found.name)
        return None

    def _listed(self, end: float, **request: object) -> Iterator[Execution]:
        """Executions of the workflow, newest first, page by page until `end` (monotonic). A page may be empty and not
        be the last. Raises GoogleAPIError.
        """
        token = ""
        for _ in range(PAGES):
            asked = {"parent": self.workflow, "page_size": 100, "page_token": token, **request}
            left = end - time.monotonic()
            if left <= 0:
                raise api.DeadlineExceeded("the listing took too long")
            # the pager itself would give every page the whole time-out
            page = next(iter(self._client.list_executions(request=asked, retry=None, timeout=left).pages))
            yield from page.executions
            token = page.next_page_token
            if not token:
                return

    def ended(self, execution: str) -> bool:
        """Whether an execution has ended, or is not there any more. Raises StartError."""
        try:
            state = self._client.get_execution(name=execution, retry=None, timeout=LOOK_SECONDS).state
        except api.NotFound:
            return True
        except api.GoogleAPIError as error:
            raise _said(error) from error
        return state not in _OPEN

    def start(self, run: RunContext) -> str:
        labels = {"run": run.run_id[:LABEL_LENGTH], "pipeline": run.pipeline}
        execution = executions_v1.Execution(argument=json.dumps(run.to_json(), ensure_ascii=False), labels=labels)
        try:
            answer = self._client.create_execution(
                parent=self.workflow, execution=execution, retry=None, timeout=START_SECONDS
            )
        except api.GoogleAPIError as error:
            raise _said(error) from error
        return str(answer.name)

    def close(self) -> None:
        self._client.transport.close()


def _preference(execution: executions_v1.Execution) -> int:
    return _PREFERRED.index(execution.state) if execution.state in _PREFERRED else len(_PREFERRED)


def _said(error: Exception) -> StartError:
    return StartError(" ".join(f"Workflows: {type(error).__name__}: {error}".split())[:500])
