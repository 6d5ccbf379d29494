"""The supervisor: the whole chain on this machine, from the Scheduler to the receivers.

Firestore and each function are child processes; the front, the Scheduler, Workflows, the receivers and the wires run in
threads of this one. Each function talks to Firestore and Workflows over a wire of its own, so that a fault knows its
caller; `wired=False` connects them directly. Two chains on one machine do not meet, as long as each has its own state
folder: all ports are free ones unless `ports` says otherwise.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tools.emulators import environment, storage
from tools.emulators.clock import Clock, SystemClock
from tools.emulators.events import Collector, Event, EventLog
from tools.emulators.faults import Plan
from tools.emulators.front import Front, Route
from tools.emulators.hosting import Host, PortInUseError, bind
from tools.emulators.http_faults import HttpFaults
from tools.emulators.receivers import Ledger, Receivers
from tools.emulators.scheduler import Attempt, Execution, Scheduler
from tools.emulators.services import Guard, Service, free_port
from tools.emulators.sinks import Sinks
from tools.emulators.tokens import Tokens
from tools.errors import UserError
from tools.settings import Settings, load

FIRST_PORT = 8700
"""Of `local`: proxy, then the steps in order, receivers, Workflows (REST, gRPC), Firestore."""


ACTIVE = ("ACTIVE", "QUEUED")
"""States of an execution that has not ended."""


class WorkflowError(UserError):
    """The workflow's source cannot be deployed; the text has a finding a line."""


class Processes:
    """What faults may do to the processes, by the names that faults use."""

    def __init__(
        self, services: Mapping[str, Service], firestore: Callable[[], storage.FirestoreProcess | None]
    ) -> None:
        self._services = services
        self._firestore = firestore

    def _find(self, name: str) -> Service | storage.FirestoreProcess:
        firestore = self._firestore() if name == storage.NAME else None
        return firestore or self._services[name]

    def kill(self, name: str) -> None:
        self._find(name).kill()

    def freeze(self, name: str) -> None:
        self._find(name).freeze()

    def resume(self, name: str) -> None:
        self._find(name).resume()


class Chain:
    """One chain. `start` it, then `deliver` slots; `stop` leaves no process behind, nor does a kill of this process.

    project: the folder of the pipeline. state: what is kept between two starts; made if it is not there.
    firestore: "embedded", "official" (Google's emulator) or the host:port of one that runs.
    billing: "request" stops a function's process while no caller waits for it, as Cloud Run may.
    settings: in place of the project's own as they are in its files.
    cron: deliver the schedule's slots by the clock; without it only `deliver` does.
    ports: the first of the fixed ports; None takes free ones.
    """

    def __init__(
        self,
        project: Path,
        state: Path,
        *,
        clock: Clock | None = None,
        plan: Plan | None = None,
        firestore: str = "embedded",
        wired: bool = True,
        billing: str = "instance",
        settings: Settings | None = None,
        cron: bool = False,
        ports: int | None = None,
    ) -> None:
        self.project = project
        self.state = state
        self.clock = clock or SystemClock()
        self.plan = plan or Plan()
        self.settings = settings or load(project)
        self.services: dict[str, Service] = {}
        self.firestore_address = ""
        self.firestore: storage.FirestoreProcess | None = None
        state.mkdir(parents=True, exist_ok=True)
        self.log = EventLog(self.clock, state / "events.jsonl")
        self.processes = Processes(self.services, lambda: self.firestore)
        self._choice = firestore
        self._wired = wired
        self._billing = billing
        self._cron = cron
        self._ports = ports
        self._open = ExitStack()
        self._forgotten: set[str] = set()
        self._front_urls: set[str] = set()

    # --- life

    def start(self) -> None:
        """Everything up, the workflow deployed, ready for a slot. Raises UserError, and leaves nothing running then."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every part; may be called twice."""
        self._open.close()

    def __enter__(self) -> Chain:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        on_exit = self._open.callback
        on_exit(self.log.close)
        listening = self._bind()
        guard = Guard()
        on_exit(guard.close)
        self._collector = Collector(self.log)
        on_exit(self._collector.stop)
        self.tokens = Tokens(self._secret())
        self._start_firestore(guard)
        self._start_workflows()
        self._start_http(listening, guard)
        with ThreadPoolExecutor(8) as pool:
            for started in [pool.submit(service.ensure) for service in self.services.values()]:
                started.result()
        if self.firestore:
            self.firestore.wait()
        self._start_scheduler()

    def _bind(self) -> dict[str, socket.socket]:
        """Every fixed port is taken, or found to be in use, before anything starts."""
        names = ["proxy", *self.settings.steps, "receivers"]
        listening: dict[str, socket.socket] = {}
        base = self._ports
        for number, name in enumerate(names):
            listening[name] = bind(0 if base is None else base + number)
            self._open.callback(listening[name].close)
        fixed = None if base is None else [base + len(names) + number for number in range(3)]
        self._workflows_ports = (fixed[0], fixed[1]) if fixed else (0, 0)
        self._firestore_port = fixed[2] if fixed else free_port()
        for port in fixed or ():
            bind(port).close()
        return listening

    def _secret(self) -> bytes:
        file = self.state / "secret"
        if not file.exists():
            file.touch(mode=0o600)
            file.write_bytes(secrets.token_bytes(32))
        return file.read_bytes()

    def _start_firestore(self, guard: Guard) -> None:
        if self._choice not in ("embedded", "official"):
            self.firestore_address = storage.elsewhere(self._choice)
            return
        port, log, collector = self._firestore_port, self.log, self._collector
        if self._choice == "embedded":
            self.firestore = storage.embedded(self.state, port, log, collector, guard)
        else:
            self.firestore = storage.official(port, log, collector, guard)
        self._open.callback(self.firestore.stop)
        self.firestore_address = self.firestore.address

    def _start_workflows(self) -> None:
        from tools.emulators.workflows.api import WorkflowsServer
        from tools.emulators.workflows.transport import HttpTransport

        transport = HttpTransport(self.clock, marks=self._is_ours)
        self.workflows = WorkflowsServer(
            self.state,
            self.clock,
            transport,
            self.tokens,
            log=self._workflow_event,
            connectors=environment.connectors(self.settings),
            firestore=self.firestore_address,
        )
        rest, grpc = self._workflows_ports
        try:
            self.workflows.start(grpc, rest)
        except OSError as error:
            raise PortInUseError(f"a port of Workflows is in use: {error}") from None
        self._open.callback(self.workflows.stop)

    def _workflow_event(self, entry: dict[str, Any]) -> None:
        self.log.record({**entry, "service": "workflows"})

    def _start_http(self, listening: Mapping[str, socket.socket], guard: Guard) -> None:
        """The front with its services, and the receivers."""
        host = Host(self.clock)
        self._open.callback(host.stop)
        self.ledger = Ledger(self.state / "ledger.jsonl")
        self._open.callback(self.ledger.close)
        from_cloud = HttpFaults(host, self.plan, self.clock, self.processes, caller_is_a_process=False)
        front = Front(host, from_cloud, self.tokens, self.clock, self.log, self._billing)
        urls = {name: f"http://127.0.0.1:{bound.getsockname()[1]}" for name, bound in listening.items()}
        sinks = Sinks(self.state, self.ledger, self.clock, self.settings.project, self.settings.region)
        self._open.callback(sinks.stop)
        for spec in environment.specs(
            self.settings, self.project, urls["receivers"], self._address_for, sinks, self._wire
        ):
            service = Service(spec, self.clock, self.log, self._collector, guard)
            self.services[spec.name] = service
            route = Route(service, urls[spec.name], environment.invokers(self.settings, spec.name))
            host.add(front.part(route), listening[spec.name])
        self._open.callback(self._stop_services)
        from_steps = HttpFaults(host, self.plan, self.clock, self.processes, caller_is_a_process=True)
        self.receivers = Receivers(
            self.ledger, from_steps, self.clock, self.log, environment.receivers(self.settings), sinks.face
        )
        host.add(self.receivers.part, listening["receivers"])
        self.urls = urls
        self._front_urls.update(url for name, url in urls.items() if name in self.services)
        host.start()
        self.deploy()

    def _stop_services(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(Service.stop, self.services.values()))

    def _is_ours(self, url: str) -> bool:
        """Whether the front serves `url`, and so marks the work on it."""
        root = "/".join(url.partition("?")[0].split("/")[:3])
        return root in self._front_urls

    def _address_for(self, caller: str, callee: str) -> str:
        """Where `caller` finds Firestore or Workflows: at its own wire."""
        upstream = self.firestore_address if callee == storage.NAME else self.workflows.grpc_address
        return self._wire(caller, callee, upstream)

    def _wire(self, caller: str, callee: str, upstream: str) -> str:
        if not self._wired:
            return upstream
        from tools.emulators.wire import GrpcWire

        wire = GrpcWire(upstream, caller, callee, self.plan, self.clock, self.processes)
        address = wire.start()
        self._open.callback(wire.stop)
        return address

    def _start_scheduler(self) -> None:
        job = environment.job(self.settings, self.urls["proxy"])
        self.scheduler = Scheduler(job, self.tokens, self.clock, self.log, self.state / "scheduler.json")
        self._open.callback(self.scheduler.stop)
        if self._cron:
            self.scheduler.start()
        if self._cron and self.settings.on_overlap == "queue":
            sweeper = Scheduler(
                environment.sweep_job(self.settings, self.urls["proxy"]), self.tokens, self.clock, self.log
            )
            self._open.callback(sweeper.stop)
            sweeper.start()

    # --- use

    def deploy(self) -> None:
        """Put the project's workflow in place, as it is now. Raises WorkflowError."""
        from tools.emulators.workflows.status import ApiError

        source = (self.project / "workflows" / "main.yaml").read_text(encoding="utf-8")
        env = environment.workflow_env(self.settings, self.urls)
        account = environment.account(self.settings, "workflow")
        try:
            self.workflows.deploy(self.settings.workflow_name, source, env=env, service_account=account)
        except ApiError as error:
            raise WorkflowError(f"workflows/main.yaml cannot be deployed:\n{error.message}") from None

    def deliver(self, slot: datetime, forced: bool = False) -> Execution:
        """One execution of the Scheduler's job: the slot, with its retries, to its end."""
        return self.scheduler.deliver(slot, forced)

    def duplicate(self, slot: datetime) -> Attempt:
        """One more call for a slot, as at-least-once delivery makes it, beside whatever is under way."""
        return self.scheduler.attempt(slot)

    @property
    def events(self) -> list[Event]:
        """Everything that was said so far, in order."""
        self._collector.drain()
        return self.log.all()

    def executions(self) -> list[dict[str, Any]]:
        """The executions of the workflow, oldest first, in full."""
        found: list[dict[str, Any]] = []
        token = ""
        while True:
            request = {"parent": self.settings.workflow_name, "view": "FULL", "pageToken": token}
            page = self.workflows.executions.list_executions(request)
            found += page["executions"]
            token = page.get("nextPageToken", "")
            if not token:
                return [execution for execution in found[::-1] if execution["name"] not in self._forgotten]

    def reset(self) -> None:
        """As it was after `start`, for another run: no faults, documents, executions, effects or events.

        Processes that were killed or frozen are there again; time goes on.
        """
        from tools.database import clear

        self.plan.clear()
        for execution in self.executions():
            if execution["state"] in ACTIVE:
                self.workflows.executions.cancel_execution({"name": execution["name"]})
        for service in self.services.values():
            service.resume()
            service.ensure()
        self._quiet()
        with self.database() as client:
            clear(client)
        self._forgotten.update(execution["name"] for execution in self.executions())
        self.receivers.clear()
        self._collector.drain()
        self.log.clear()

    def _quiet(self, seconds: float = 30.0) -> None:
        """Until no body is at work any more; what does not end in time is killed."""
        until = time.monotonic() + seconds
        for service in self.services.values():
            while service.open:
                if time.monotonic() > until:
                    service.restart()
                time.sleep(0.005)

    def settle(self, seconds: float = 120.0) -> bool:
        """Wait until no execution is active; False if one still is after `seconds` of real time."""
        until = time.monotonic() + seconds
        while any(execution["state"] in ACTIVE for execution in self.executions()):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    @contextmanager
    def database(self) -> Iterator[Any]:
        """A Firestore client beside the wires."""
        from tools.database import connect

        with connect(self.settings.project, self.settings.database, self.firestore_address) as client:
            yield client

    def documents(self) -> dict[str, dict[str, Any]]:
        """The project's documents by path, without the protocol's own records."""
        from tools.database import documents

        with self.database() as client:
            return documents(client, omit=[f"{self.settings.pipeline}_runs"])
