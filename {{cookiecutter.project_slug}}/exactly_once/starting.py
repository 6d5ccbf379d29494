"""Executions of the workflow. The only module that imports the Workflows client.

WORKFLOWS_EMULATOR_HOST (host:port) leads it to an emulator, without encryption.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

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

_State = executions_v1.Execution.State

_PREFERRED = (_State.ACTIVE, _State.STATE_UNSPECIFIED, _State.SUCCEEDED)
"""Of several executions of one run the one to adopt: at work, queued (which this client does not name), done, any
other.
"""


class WorkflowsStarter:
    """`Starter` on one workflow, named `projects/P/locations/R/workflows/W`. Each RPC is sent once."""

    def __init__(self, workflow: str, environ: Mapping[str, str] = os.environ) -> None:
        """Raises StartError when there are no credentials."""
        self.workflow = workflow
        emulator = environ.get("WORKFLOWS_EMULATOR_HOST")
        try:
            if emulator:
                channel = grpc.insecure_channel(emulator)
                self._client = executions_v1.ExecutionsClient(transport=ExecutionsGrpcTransport(channel=channel))
            else:
                self._client = executions_v1.ExecutionsClient()
        except GoogleAuthError as error:
            raise StartError(f"no credentials for Workflows: {error}") from error

    def find(self, run: RunContext) -> str | None:
        request = {"parent": self.workflow, "filter": f'labels.run="{run.run_id[:LABEL_LENGTH]}"', "page_size": 100}
        try:
            pager = self._client.list_executions(request=request, retry=None, timeout=FIND_SECONDS)
            found = list(next(iter(pager.pages)).executions)
        except api.GoogleAPIError as error:
            raise _said(error) from error
        if not found:
            return None
        return str(min(found, key=_preference).name)

    def at_work(self) -> str | None:
        """The name of an execution of the workflow that has not ended, if the listing shows one. Raises StartError."""
        for state in ("ACTIVE", "QUEUED"):
            request = {"parent": self.workflow, "filter": f'state="{state}"', "page_size": 1}
            try:
                pager = self._client.list_executions(request=request, retry=None, timeout=LOOK_SECONDS)
                found = list(next(iter(pager.pages)).executions)
            except api.GoogleAPIError as error:
                raise _said(error) from error
            if found:
                return str(found[0].name)
        return None

    def ended(self, execution: str) -> bool:
        """Whether an execution has ended, or is not there any more. Raises StartError."""
        try:
            state = self._client.get_execution(name=execution, retry=None, timeout=LOOK_SECONDS).state
        except api.NotFound:
            return True
        except api.GoogleAPIError as error:
            raise _said(error) from error
        return state not in _PREFERRED[:2]

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
