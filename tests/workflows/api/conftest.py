"""A Workflows server on free ports, reached by Google's own clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.cloud import workflows_v1
from google.cloud.workflows import executions_v1
from google.cloud.workflows.executions_v1.services.executions.transports import ExecutionsGrpcTransport
from google.cloud.workflows_v1.services.workflows.transports import WorkflowsGrpcTransport

from tools.emulators.clock import JumpClock, OffsetFile
from tools.emulators.workflows.api import WorkflowsServer
from tools.emulators.workflows.errors import ConnectionBroken
from tools.emulators.workflows.runtime import Request, Response
from tools.emulators.workflows.transport import Transport

LOCATION = "projects/p/locations/us-central1"


class FakeTransport:
    """Answers with what `answer` gives; until `close`, a call may wait on `closed`."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self.closed = threading.Event()
        self.answer: Callable[[Request], Response] = lambda request: Response(200, {}, b"")

    def request(self, request: Request) -> Response:
        self.sent.append(request)
        return self.answer(request)

    def hang(self, request: Request) -> Response:
        self.closed.wait()
        raise ConnectionBroken("the emulator is stopping")

    def close(self) -> None:
        self.closed.set()


class Desk:
    """One server with what tests need around it."""

    def __init__(self, state: Path, clock: JumpClock, transport: Transport | None = None, **more: Any) -> None:
        self.clock = clock
        self.transport = FakeTransport()
        self.logs: list[dict[str, Any]] = []
        self.server = WorkflowsServer(state, clock, transport or self.transport, log=self.logs.append, **more)
        self.server.start()
        self._channel = grpc.insecure_channel(self.server.grpc_address)
        self.workflows = workflows_v1.WorkflowsClient(transport=WorkflowsGrpcTransport(channel=self._channel))
        self.executions = executions_v1.ExecutionsClient(transport=ExecutionsGrpcTransport(channel=self._channel))

    def deploy(self, source: str, workflow_id: str = "w", **fields: Any) -> str:
        """Create a workflow through the API; its name."""
        workflow = workflows_v1.Workflow(source_contents=source, **fields)
        operation = self.workflows.create_workflow(parent=LOCATION, workflow=workflow, workflow_id=workflow_id)
        name: str = operation.result(timeout=10).name
        return name

    def start(self, workflow: str, argument: str = "", **fields: Any) -> str:
        """The name of a new execution."""
        execution = executions_v1.Execution(argument=argument, **fields)
        name: str = self.executions.create_execution(parent=workflow, execution=execution).name
        return name

    def end(self, execution: str) -> executions_v1.Execution:
        """The execution once it has ended."""
        self.server.executions.wait(execution, 10**9)
        return self.executions.get_execution(name=execution)

    def run(self, workflow: str, argument: str = "", **fields: Any) -> executions_v1.Execution:
        return self.end(self.start(workflow, argument, **fields))

    def close(self) -> None:
        self._channel.close()
        self.server.stop()


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[JumpClock]:
    made = JumpClock(OffsetFile(tmp_path / "offset"))
    yield made
    made.stop()


@pytest.fixture
def desk(tmp_path: Path, clock: JumpClock) -> Iterator[Desk]:
    made = Desk(tmp_path / "state", clock)
    yield made
    made.close()
