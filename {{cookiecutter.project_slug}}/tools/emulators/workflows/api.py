"""The Workflows emulator as one part: both APIs, over gRPC and REST, with the executions behind them."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..clock import Clock
from ..tokens import Tokens
from .callbacks import CallbackEndpoints
from .connectors import Connectors
from .deployments import Deployments
from .executions import Executions
from .grpc_face import GrpcFace
from .history import Sink
from .journal import Journal
from .limits import Limits
from .resources import Resource
from .rest_face import RestFace
from .runner import CONCURRENCY, Runner
from .runtime import StepEvent
from .status import ApiError
from .transport import HttpTransport, Transport


def _nowhere(_: dict[str, Any]) -> None:
    """Logs go nowhere unless a sink is given."""


class WorkflowsServer:
    """Workflows and Workflow Executions on a laptop.

    state: the folder that keeps workflows and executions (`workflows.db`); None keeps nothing.
    clock: every time and wait. transport: how calls go out; real HTTP without. tokens: who signs them.
    log: gets an entry a log line (see `history`). connectors: service -> URL of its stand-in.
    firestore: the address (host:port) of a Firestore emulator for Firestore's connectors.
    ids: makes execution and revision ids. concurrency: executions at once. watch: sees every step begin and end.
    """

    def __init__(
        self,
        state: Path | None,
        clock: Clock,
        transport: Transport | None = None,
        tokens: Tokens | None = None,
        *,
        log: Sink = _nowhere,
        connectors: Mapping[str, str] | None = None,
        firestore: str | None = None,
        ids: random.Random | None = None,
        limits: Limits | None = None,
        concurrency: int = CONCURRENCY,
        watch: Callable[[StepEvent], None] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        ids = ids or random.Random(secrets.randbits(128))
        self._host = host
        self.grpc_address = ""
        """host:port, once started."""
        self.rest_url = ""
        """http://host:port, once started."""
        self.tokens = tokens or Tokens(secrets.token_bytes(32))
        """Who signs the tokens of calls."""
        self._journal = Journal(state / "workflows.db" if state is not None else None)
        self._connectors = Connectors(connectors or {}, firestore)
        callbacks = CallbackEndpoints(clock, lambda: self.rest_url, lambda: f"{ids.getrandbits(128):032x}")
        runner = Runner(
            clock,
            ids,
            transport or HttpTransport(clock),
            self.tokens,
            self._connectors,
            callbacks,
            log,
            limits or Limits(),
            concurrency,
            watch,
        )
        self.workflows = Deployments(self._journal, clock, ids, self._connectors.refusal)
        """The Workflows API, for callers in the same process."""
        self.executions = Executions(self.workflows, self._journal, clock, runner)
        """The Workflow Executions API, likewise."""
        runner.starter = self.executions
        self._runner = runner
        self._grpc = GrpcFace(self.workflows, self.executions)
        self._rest = RestFace(self.workflows, self.executions, callbacks, clock)

    def start(self, grpc_port: int = 0, rest_port: int = 0) -> None:
        """Listen; port 0 takes a free one. Raises OSError if a port is in use."""
        try:
            self.rest_url = self._rest.start(self._host, rest_port)
            self.grpc_address = self._grpc.start(self._host, grpc_port)
        except OSError:
            self.stop()
            raise

    def stop(self) -> None:
        """End every execution and every thread. What was active is FAILED when the state is read again."""
        self._grpc.stop()
        self._runner.close()
        self._rest.stop()
        self._connectors.close()
        self._journal.close()

    def deploy(
        self,
        name: str,
        source: str,
        *,
        env: Mapping[str, str] | None = None,
        service_account: str | None = None,
        labels: Mapping[str, str] | None = None,
        call_log_level: str | None = None,
    ) -> Resource:
        """Create or update the workflow `name` (projects/P/locations/L/workflows/W); the workflow as it stands then.

        Raises ApiError; the message of INVALID_ARGUMENT has one finding of the source a line.
        """
        parent, _, workflow_id = name.partition("/workflows/")
        workflow: Resource = {"sourceContents": source, "userEnvVars": dict(env or {}), "labels": dict(labels or {})}
        if service_account:
            workflow["serviceAccount"] = service_account
        if call_log_level:
            workflow["callLogLevel"] = call_log_level
        try:
            self.workflows.require(name)
        except ApiError:
            request = {"parent": parent, "workflowId": workflow_id, "workflow": workflow}
            operation = self.workflows.create_workflow(request)
        else:
            operation = self.workflows.update_workflow({"workflow": {**workflow, "name": name}})
        if "error" in operation:
            raise ApiError("INVALID_ARGUMENT", operation["error"]["message"])
        return self.workflows.get_workflow({"name": name})
