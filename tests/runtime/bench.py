"""One pipeline's records on a real server, reached over a wire that can fail, with its RPCs counted."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports.grpc import FirestoreGrpcTransport

from exactly_once.external import External, OnUnknown, Verify
from exactly_once.firestore import FirestoreStore
from exactly_once.identity import RunContext, manual_run, run_path, step_path
from exactly_once.log import Log
from exactly_once.protocol import Protocol
from exactly_once.runtime import Runtime
from exactly_once.settings import StepSettings
from exactly_once.steps import Handler, serve
from exactly_once.store import Host
from exactly_once.transactional import Transactional
from tools.emulators.clock import SystemClock
from tools.emulators.faults import Plan
from tools.emulators.wire import GrpcWire

SCOPE = "test-project/region/prod"
HOUR = 3600.0
RECONNECT = 0.02
"""Real seconds of a pause, at most: what a client needs to connect again after a cut."""


class Counter(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Notes the name of every RPC that leaves the client."""

    def __init__(self) -> None:
        self.rpcs: list[str] = []

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._note(continuation, details, request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._note(continuation, details, request)

    def _note(self, continuation: Any, details: Any, request: Any) -> Any:
        self.rpcs.append(details.method.rsplit("/", 1)[1])
        return continuation(details, request)


def client_at(address: str, *interceptors: Any) -> tuple[firestore.Client, grpc.Channel]:
    """A client of its own connection; close the channel."""
    channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
    client = firestore.Client(project="test-project", credentials=AnonymousCredentials())
    transport = FirestoreGrpcTransport(channel=grpc.intercept_channel(channel, *interceptors))
    client._firestore_api_internal = FirestoreClient(transport=transport)
    return client, channel


class LateClock(SystemClock):
    """A clock on which nobody's sleep ends before `land` is called: late calls land when the test says so."""

    def __init__(self) -> None:
        self._landed = threading.Event()

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> bool:
        assert self._landed.wait(30.0)
        return False

    def land(self) -> None:
        self._landed.set()


@dataclass
class Request:
    """As much of a Flask request as the runtime reads."""

    method: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_length(self) -> int | None:
        return len(self.body)

    @property
    def stream(self) -> io.BytesIO:
        return io.BytesIO(self.body)


@dataclass
class Answer:
    text: str
    status: int

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str | None:
        error = self.json.get("error")
        return str(error["code"]) if error else None

    @property
    def result(self) -> Any:
        assert self.status == 200, self.text
        return self.json["result"]

    @property
    def replayed(self) -> bool:
        assert self.status == 200, self.text
        return bool(self.json["replayed"])


@dataclass
class Bench:
    """What a test works with. `events` are the parsed log lines; `rpcs` the RPCs of the runtime so far."""

    pipeline: str
    address: str
    step: str = "charge"
    key: str = "a key"
    timeout: float = 300.0
    lease: float = 330.0
    max_attempts: int = 10
    host: Host = field(default_factory=lambda: Host(sleep=lambda seconds: time.sleep(min(seconds, RECONNECT))))
    plan: Plan = field(default_factory=Plan)
    clock: LateClock = field(default_factory=LateClock)
    events: list[dict[str, Any]] = field(default_factory=list)
    counter: Counter = field(default_factory=Counter)

    def start(self) -> None:
        self.wire = GrpcWire(self.address, "charge", "firestore", self.plan, self.clock)
        self.client, self._channel = client_at(self.wire.start(), self.counter)
        self.direct, self._direct_channel = client_at(self.address)
        self.store = FirestoreStore(self.client)

    def stop(self) -> None:
        self.clock.land()
        self._channel.close()
        self._direct_channel.close()
        self.wire.stop()

    @property
    def rpcs(self) -> list[str]:
        return self.counter.rpcs

    @property
    def log(self) -> Log:
        return Log(lambda line: self.events.append(json.loads(line)))

    @property
    def settings(self) -> StepSettings:
        days = timedelta(days=90)
        return StepSettings(
            self.pipeline, "test-project", "(default)", days, self.step, self.timeout, self.lease, self.max_attempts
        )

    def runtime(self, host: Host | None = None) -> Runtime:
        return Runtime(self.settings, self.store, host or self.host, self.log)

    @property
    def protocol(self) -> Protocol:
        return Protocol(self.store, self.host)

    def run(self) -> RunContext:
        return manual_run(self.pipeline, SCOPE, self.key)

    def body(self, payload: Any = None, item: str | None = None, **changed: Any) -> dict[str, Any]:
        run = self.run()
        body = {"run_id": run.run_id, "step": self.step, "input": payload, "run": run.to_json()}
        return {**body, **({} if item is None else {"item": item}), **changed}

    def call(
        self,
        handler: Handler,
        payload: Any = None,
        item: str | None = None,
        *,
        raw: bytes | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        host: Host | None = None,
        **changed: Any,
    ) -> Answer:
        body = json.dumps(self.body(payload, item, **changed)).encode() if raw is None else raw
        text, status, _ = serve(handler, self.runtime(host), Request(method, headers or {}, body))
        return Answer(text, status)

    def path(self, item: str | None = None) -> str:
        return step_path(self.pipeline, self.run().run_id, self.step, item)

    def record(self, item: str | None = None) -> dict[str, Any] | None:
        found = self.direct.document(self.path(item)).get().to_dict()
        assert found is None or isinstance(found, dict)
        return found

    def run_record(self) -> dict[str, Any] | None:
        found = self.direct.document(run_path(self.pipeline, self.run().run_id)).get().to_dict()
        assert found is None or isinstance(found, dict)
        return found

    def status(self, item: str | None = None) -> str | None:
        record = self.record(item)
        return str(record["status"]) if record else None

    def age(self, item: str | None = None, seconds: float = HOUR, path: str | None = None) -> None:
        """As if the record's claim had been made `seconds` earlier, by the server's clock."""
        document = self.direct.document(path or self.path(item))
        claimed = document.get().get("claimed_at")
        document.update({"claimed_at": claimed - timedelta(seconds=seconds)})

    def counted(self, act: Callable[[], Any]) -> list[str]:
        before = len(self.rpcs)
        act()
        return self.rpcs[before:]

    def seen(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    def with_process_clock(self, seconds: float) -> Host:
        """A host whose wall clock is wrong by `seconds`."""
        right = self.host.now
        return replace(self.host, now=lambda: right() + timedelta(seconds=seconds))


class Effects:
    """A body that counts: what an outside system has seen."""

    def __init__(self, act: Callable[[Any, Any], Any] = lambda run, payload: {"ok": True}) -> None:
        self.runs: list[Any] = []
        self._act = act

    def __call__(self, run: Any, payload: Any) -> Any:
        self.runs.append(run)
        return self._act(run, payload)

    def __len__(self) -> int:
        return len(self.runs)


def external(
    body: Any, on_unknown: OnUnknown = "retry", verify: Verify | None = None, marks_start: bool = False
) -> External:
    return External(body, on_unknown, verify, marks_start)


def raising(error: BaseException) -> Callable[[Any, Any], Any]:
    def body(run: Any, payload: Any) -> Any:
        raise error

    return body


def writes_once(bench: Bench) -> tuple[Transactional, list[int]]:
    """A transactional step that adds 1 to a document, and the attempts in which its body ran."""
    ran: list[int] = []
    counter = bench.client.document(f"{bench.pipeline}_effects/n")

    def body(transaction: Any, run: Any, payload: Any) -> Any:
        ran.append(run.attempt)
        before = counter.get(transaction=transaction).to_dict() or {"n": 0}
        transaction.set(counter, {"n": before["n"] + 1})
        return {"n": before["n"] + 1}

    return Transactional(body), ran


def effect_count(bench: Bench) -> int:
    found = bench.direct.document(f"{bench.pipeline}_effects/n").get().to_dict()
    return int(found["n"]) if found else 0
