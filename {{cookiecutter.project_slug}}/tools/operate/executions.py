"""Executions as the Executions API has them, on the laptop and in the cloud."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import grpc
from google.api_core import exceptions as api
from google.cloud.workflows import executions_v1
from google.cloud.workflows.executions_v1.services.executions.transports import ExecutionsGrpcTransport

from exactly_once.starting import LABEL_LENGTH

SECONDS = 20.0
PAGE = 1000
"""The most that one page of the API has in the BASIC view."""

_State = executions_v1.Execution.State

_STATES = {
    _State.ACTIVE: "active",
    _State.SUCCEEDED: "succeeded",
    _State.FAILED: "failed",
    _State.CANCELLED: "cancelled",
    _State.UNAVAILABLE: "unavailable",
}
"""QUEUED is not among them: this client does not name it."""


@dataclass(frozen=True)
class Execution:
    """`state`: active, queued, succeeded, failed, cancelled, unavailable. `error`: what a failed one ended with."""

    name: str
    state: str
    began: datetime | None
    ended: datetime | None
    error: str | None = None

    @property
    def at_work(self) -> bool:
        return self.state in ("active", "queued")

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]


class Executions:
    """Those of one workflow, `projects/P/locations/R/workflows/W`. Every method raises GoogleAPIError."""

    def __init__(self, workflow: str, emulator: str | None) -> None:
        """`emulator` is host:port of Workflows on the laptop. Raises GoogleAuthError."""
        self.workflow = workflow
        if emulator:
            transport = ExecutionsGrpcTransport(channel=grpc.insecure_channel(emulator))
            self._client = executions_v1.ExecutionsClient(transport=transport)
        else:
            self._client = executions_v1.ExecutionsClient()

    def named(
        self, names: Iterable[str], oldest: datetime | None, progress: Callable[[int], None] = lambda found: None
    ) -> dict[str, Execution]:
        """The executions among `names` that the listing has, newest first, until one began before `oldest`."""
        wanted, found = set(names), dict[str, Execution]()
        if not wanted:
            return found
        if len(wanted) <= 2:
            return {name: execution for name in wanted if (execution := self.get(name))}
        request = {"parent": self.workflow, "page_size": min(PAGE, 2 * len(wanted))}
        for page in self._client.list_executions(request=request, retry=None, timeout=SECONDS).pages:
            for each in page.executions:
                if (name := each.name) in wanted:
                    found[name] = _execution(each)
            last = _began(page.executions[-1]) if page.executions else None
            progress(len(found))
            if len(found) == len(wanted) or (oldest and last and last < oldest):
                break
        return found

    def of(self, run_id: str) -> list[Execution]:
        """The executions of a run, newest first, as far as the listing shows them."""
        request = {"parent": self.workflow, "filter": f'labels.run="{run_id[:LABEL_LENGTH]}"', "page_size": 100}
        pager = self._client.list_executions(request=request, retry=None, timeout=SECONDS)
        return [_execution(each) for each in next(iter(pager.pages)).executions]

    def get(self, name: str) -> Execution | None:
        """In full; None if it is not there (Workflows keeps executions for 90 days)."""
        try:
            return _execution(self._client.get_execution(name=name, retry=None, timeout=SECONDS))
        except api.NotFound:
            return None

    def cancel(self, name: str) -> None:
        """Raises FailedPrecondition if it has ended."""
        self._client.cancel_execution(name=name, retry=None, timeout=SECONDS)

    def close(self) -> None:
        self._client.transport.close()


def _execution(each: executions_v1.Execution) -> Execution:
    return Execution(
        each.name,
        _STATES.get(each.state, "queued"),
        _began(each),
        each.end_time or None,
        _payload(each) if each.state == _State.FAILED else None,
    )


def _began(each: executions_v1.Execution) -> datetime | None:
    began: datetime | None = each.start_time or None
    return began


def _payload(each: executions_v1.Execution) -> str | None:
    """What it ended with: the message of an HTTP answer where there is one."""
    if not each.error.payload:
        return None
    try:
        said = json.loads(each.error.payload)
        body = said["body"]["error"] if isinstance(said, dict) and isinstance(said.get("body"), dict) else None
        if body:
            return f"{said.get('code', '')} {body.get('code', '')}: {body.get('message', '')}".strip()
        return str(said.get("message") or said) if isinstance(said, dict) else str(said)
    except (ValueError, KeyError, AttributeError):
        return str(each.error.payload)
