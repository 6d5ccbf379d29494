"""A pipeline to operate: real records on a Firestore server, real executions on Workflows, steps in this process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tools.operate.place as place_module
from exactly_once.external import External
from exactly_once.firestore import FirestoreStore
from exactly_once.identity import RunContext, instant_text, run_path, slot_run, step_path
from exactly_once.launching import Launcher
from exactly_once.log import Log
from exactly_once.protocol import Protocol
from exactly_once.runtime import Runtime
from exactly_once.settings import StepSettings
from exactly_once.starting import WorkflowsStarter
from exactly_once.steps import Handler, serve
from exactly_once.store import Host
from exactly_once.transactional import Transactional
from tests.runtime.bench import Request as StepRequest
from tools.cli import pipeline
from tools.database import connect
from tools.emulators.clock import SystemClock
from tools.emulators.workflows.api import WorkflowsServer
from tools.emulators.workflows.runtime import Request, Response
from tools.errors import UserError
from tools.project import Running
from tools.settings import Settings, load

MAIN = """
main:
  params: [run]
  steps:
    - take:
        call: run_step
        args: {step: take, run: "${run}", input: null, item: null}
        result: taken
    - charge:
        parallel:
          for:
            value: order
            in: ["x", "y", "z"]
            steps:
              - one:
                  call: run_step
                  args: {step: charge, run: "${run}", input: null, item: "${order}"}
    - report:
        call: run_step
        args: {step: report, run: "${run}", input: "${taken}", item: null}
        result: said
    - finish:
        return: ${said}
run_step:
  params: [step, run, input: null, item: null]
  steps:
    - prepare:
        assign:
          - request: {run_id: "${run.run_id}", step: "${step}", input: "${input}", run: "${run}"}
    - name:
        switch:
          - condition: ${item != null}
            assign:
              - request.item: ${item}
    - call:
        call: http.post
        args: {url: "${\\"http://steps/\\" + step}", body: "${request}"}
        result: answer
    - give:
        return: ${answer.body.result}
"""
"""Three steps, one of them for three items; no retry: what fails, fails the execution."""

STEPS = ("take", "charge", "report")
STEP_ENV = "TIMEOUT=300\nLEASE=330\n"
SETTINGS = """PIPELINE={pipeline}
PROJECT=test-project
REGION=europe-west1
DATABASE={pipeline}
SCHEDULE="0 2 * * *"
TIME_ZONE=Etc/UTC
JOB={pipeline}
"""

Body = Callable[[Any, Any], Any]


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code in (0, 3), self.err
        return json.loads(self.out)


@dataclass
class Office:
    """`bodies` are the steps' bodies, `ran` counts what each did (`step` or `step item`)."""

    root: Path
    address: str
    settings: Settings
    workflows: WorkflowsServer
    client: Any
    bodies: dict[str, Body] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    @property
    def events(self) -> Path:
        return self.root / ".local" / "events.jsonl"

    def running(self) -> Running:
        return Running(0, self.address, self.workflows.grpc_address, self.workflows.rest_url, {}, str(self.events))

    # --- the pipeline at work

    def request(self, request: Request) -> Response:
        """What Workflows calls: the runtime's own code with the body of the test."""
        name = request.url.rpartition("/")[2]
        settings = StepSettings(
            self.settings.pipeline, "test-project", self.settings.database, timedelta(days=90), name, 300.0, 330.0, 10
        )
        runtime = Runtime(settings, FirestoreStore(self.client), Host(), Log(self.write))
        text, status, _ = serve(self._handler(name), runtime, StepRequest("POST", {}, request.body or b""))
        return Response(status, {"content-type": "application/json"}, text.encode())

    def close(self) -> None:
        """Part of a transport."""

    def _handler(self, name: str) -> Handler:
        body: Body = self.bodies.get(name) or (lambda run, payload: {"step": name})

        def run(run: Any, payload: Any) -> Any:
            result = body(run, payload)
            self.ran.append(name if run.item is None else f"{name} {run.item}")
            return result

        if name == "take":
            return Transactional(lambda transaction, its, payload: run(its, payload))
        return External(run, "hold" if name == "report" else "retry", None, False)

    def write(self, line: str) -> None:
        with self.events.open("a") as file:
            file.write(json.dumps({**json.loads(line), "service": "test", "time": 1.0}) + "\n")

    def launcher(self) -> Launcher:
        starter = WorkflowsStarter(
            self.settings.workflow_name, {"WORKFLOWS_EMULATOR_HOST": self.workflows.grpc_address}
        )
        return Launcher(
            self.settings.pipeline, Protocol(FirestoreStore(self.client), Host()), starter, 120.0, timedelta(days=90)
        )

    def slot(self, day: int, month: int = 1) -> RunContext:
        moment = datetime(2026, month, day, 2, tzinfo=UTC)
        settings = self.settings
        return slot_run(settings.pipeline, settings.scope, settings.job, moment, settings.time_zone)

    def deliver(self, run: RunContext) -> str:
        """As the proxy does it, and wait for the end; the run id."""
        started = self.launcher().deliver(run, Log(self.write))
        self.ended(started.execution)
        return run.run_id

    def ended(self, name: str) -> str:
        """The state in which an execution ends."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            state = self.workflows.executions.get_execution({"name": name})["state"]
            if state not in ("ACTIVE", "QUEUED"):
                return str(state)
            time.sleep(0.005)
        raise AssertionError(f"{name} does not end")

    # --- the operator

    def op(self, *words: str, answer: str | None = None) -> Result:
        """`./pipeline WORDS`, as a person at a terminal would get it; `answer` is typed."""
        got = CliRunner().invoke(pipeline, list(words), input=answer, standalone_mode=False)
        code, err = got.exit_code, got.stderr
        if isinstance(got.exception, UserError):
            return Result(1, got.stdout, err + f"Error: {got.exception}")
        if got.exception is not None and not isinstance(got.exception, SystemExit):
            if hasattr(got.exception, "format_message"):
                return Result(2, got.stdout, err + got.exception.format_message())
            if type(got.exception).__name__ == "Abort":
                return Result(130, got.stdout, err)
            raise got.exception
        if isinstance(got.return_value, int) and not code:
            code = got.return_value
        return Result(code, got.stdout, err)

    # --- the records

    def record(self, run_id: str, step: str | None = None, item: str | None = None) -> dict[str, Any]:
        pipeline = self.settings.pipeline
        path = step_path(pipeline, run_id, step, item) if step else run_path(pipeline, run_id)
        found = self.client.document(path).get().to_dict()
        assert found is not None, path
        return dict(found)

    def history(self, days: int, execution: str | None = None, first: datetime | None = None) -> list[str]:
        """Runs of `days` slots back from `first`, as records alone; their ids, latest first."""
        pipeline, made = self.settings.pipeline, []
        moment = first or datetime(2025, 12, 31, 2, tzinfo=UTC)
        writer = self.client.batch()
        for number in range(days):
            settings = self.settings
            run = slot_run(pipeline, settings.scope, settings.job, moment - timedelta(days=number), "Etc/UTC")
            made.append(run.run_id)
            assert run.slot
            writer.set(
                self.client.document(run_path(pipeline, run.run_id)),
                {
                    "status": "started",
                    "attempt_id": f"{number:032x}",
                    "attempts": 1,
                    "claimed_at": moment - timedelta(days=number),
                    "lease_seconds": 120.0,
                    "expire_at": moment + timedelta(days=92),
                    "execution": execution or f"{settings.workflow_name}/executions/gone-{number}",
                    "job": settings.job,
                    "slot": instant_text(run.slot),
                    "kind": "schedule",
                    "key": run.key,
                    "run": json.dumps(run.to_json()),
                },
            )
            if len(made) % 400 == 0:
                writer.commit()
                writer = self.client.batch()
        writer.commit()
        return made


def open_office(root: Path, name: str, address: str, patch: pytest.MonkeyPatch) -> Iterator[Office]:
    """`name` is the pipeline's; `address` a Firestore server's."""
    (root / "workflows").mkdir(parents=True)
    (root / ".local").mkdir()
    (root / ".local" / "events.jsonl").touch()
    (root / "workflows" / "main.yaml").write_text(MAIN)
    (root / "settings.env").write_text(SETTINGS.format(pipeline=name))
    for step in STEPS:
        (root / "functions" / step).mkdir(parents=True)
        kind = "@transactional_step" if step == "take" else '@step(on_unknown="retry")'
        (root / "functions" / step / "main.py").write_text(f"{kind}\ndef main(): ...\n")
        (root / "functions" / step / "step.env").write_text(STEP_ENV)
    settings = load(root)
    with connect("test-project", settings.database, address) as client:
        office = Office(root, address, settings, None, client)  # type: ignore[arg-type]
        office.workflows = WorkflowsServer(None, SystemClock(), office)
        office.workflows.start()
        office.workflows.deploy(settings.workflow_name, MAIN)
        patch.setattr(place_module, "ROOT", root)
        patch.setattr(place_module, "running", lambda state: office.running())
        try:
            yield office
        finally:
            office.workflows.stop()
