"""Runs executions side by side, a thread each, and gives each its world."""

from __future__ import annotations

import json
import random
import threading
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..clock import Clock, Hold
from ..tokens import Tokens
from . import engine
from .callbacks import CallbackEndpoints
from .connectors import Connectors
from .deployments import Deployed, project_number
from .errors import WorkflowError, http_error
from .history import History, Sink
from .limits import Limits
from .resources import Resource
from .runtime import StepEvent, Stop, World
from .status import ApiError
from .transport import Authorized, Transport
from .values import Value, from_json, to_json

CONCURRENCY = 500
"""Executions that run at once; more are QUEUED. (Google's quota is 10,000 in a region.)"""


@dataclass
class Running:
    """One execution under way. `end` takes its outcome, once. `created` is what its creator is answered."""

    record: Resource
    deployed: Deployed
    history: History
    began: Callable[[Running], bool]
    ended: Callable[[Running, Resource], None]
    stop: Stop = field(default_factory=Stop)
    over: Stop = field(default_factory=Stop)  # set when it has ended
    created: Resource | None = None

    def end(self, state: str, **outcome: Any) -> None:
        self.ended(self, {"state": state, **outcome})


class Starter(Protocol):
    """Where `experimental.executions.run` starts executions."""

    def create_execution(self, request: Resource) -> Resource: ...

    def wait(self, name: str, seconds: float, stop: Stop | None = None) -> Resource: ...


class Runner:
    """Threads for executions. `starter` is set by who keeps the executions, and starts those that executions start."""

    def __init__(
        self,
        clock: Clock,
        ids: random.Random,
        transport: Transport,
        tokens: Tokens,
        connectors: Connectors,
        callbacks: CallbackEndpoints,
        sink: Sink,
        limits: Limits,
        concurrency: int = CONCURRENCY,
        watch: Callable[[StepEvent], None] | None = None,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._transport = transport
        self._tokens = tokens
        self._connectors = connectors
        self.callbacks = callbacks
        self._sink = sink
        self._limits = limits
        self._concurrency = concurrency
        self._watch = watch
        self._ids_lock = threading.Lock()
        self._lock = threading.Lock()
        self._queue: deque[Running] = deque()
        self._threads: dict[threading.Thread, Running] = {}
        self._closed = False
        self.starter: Starter | None = None

    def new_id(self) -> str:
        with self._ids_lock:
            return str(uuid.UUID(int=self._ids.getrandbits(128), version=4))

    def full(self) -> bool:
        """The next execution would have to wait."""
        with self._lock:
            return len(self._threads) >= self._concurrency

    def prepare(
        self,
        record: Resource,
        deployed: Deployed,
        began: Callable[[Running], bool],
        ended: Callable[[Running, Resource], None],
    ) -> Running:
        history = History(record["name"], record["labels"], deployed.definition, self._sink, self._watch)
        return Running(record, deployed, history, began, ended)

    def start(self, running: Running) -> None:
        """Run it in a thread, or queue it. Raises ApiError UNAVAILABLE after `close`."""
        with self._lock:
            if self._closed:
                raise ApiError("UNAVAILABLE", "the emulator is stopping")
            if len(self._threads) >= self._concurrency:
                self._queue.append(running)
                return
            self._launch(running)

    def _launch(self, running: Running) -> None:
        """With the lock held. Time does not jump between now and the engine's first mark."""
        hold = self._clock.hold()
        hold.on()
        running.began(running)
        thread = threading.Thread(target=self._work, args=(running, hold), daemon=True, name="execution")
        self._threads[thread] = running
        thread.start()

    def _work(self, running: Running, hold: Hold) -> None:
        try:
            self._execute(running, hold)
        finally:
            hold.off()
            with self._lock:
                self._threads.pop(threading.current_thread(), None)
                while self._queue and not self._closed and len(self._threads) < self._concurrency:
                    self._launch(self._queue.popleft())

    def _execute(self, running: Running, hold: Hold) -> None:
        record = running.record
        if record["state"] != "ACTIVE":
            return
        say = running.history.lifecycle
        say("workflow.started", "INFO", "execution started", self._clock.now(), argument=record["argument"])
        try:
            self._end(
                running,
                engine.execute(
                    running.deployed.definition,
                    None if record["argument"] is None else from_json(record["argument"]),
                    self._world(running, hold),
                    env=environment(record["name"], running.deployed.workflow),
                    stop=running.stop,
                ),
            )
        except Exception:
            running.end(**failed("the emulator has a bug", traceback.format_exc()))
        self._say_end(running)

    def _end(self, running: Running, outcome: engine.Outcome) -> None:
        if outcome.state == "CANCELLED" and self._closed:
            running.end(**interrupted())
        elif outcome.error is not None:
            running.end(outcome.state, error=_error(outcome.error))
        else:
            running.end(outcome.state, result=outcome.result_json)

    def _say_end(self, running: Running) -> None:
        record = running.record
        bad = record["state"] != "SUCCEEDED"
        more = {"error": record["error"]} if record.get("error") else {}
        message = f"execution {record['state'].lower()}"
        if bad and record.get("error"):
            message += ": " + record["error"].get("context", "").partition("\n")[0]
        severity = "ERROR" if record["state"] == "FAILED" else "INFO"
        running.history.lifecycle(
            "workflow.finished", severity, message, self._clock.now(), state=record["state"], **more
        )

    def _world(self, running: Running, hold: Hold) -> World:
        name, workflow = running.record["name"], running.deployed.workflow
        clock = _FirstMark(self._clock, hold)
        email = workflow["serviceAccount"].rpartition("/")[2]
        level = running.record["callLogLevel"]
        calls = {"LOG_ALL_CALLS": running.history.call, "LOG_ERRORS_ONLY": running.history.failed_call}
        return World(
            clock=clock,
            transport=Authorized(self._transport, self._tokens, email, clock),
            random=random.Random(self._ids.getrandbits(64)),
            callbacks=self.callbacks.of(name),
            connector=self._connectors.call,
            children=_Children(self, name),
            log=running.history.log,
            observe=running.history.observe,
            calls=calls.get(level),
            limits=self._limits,
        )

    def close(self) -> None:
        """Stop every execution and wait until its thread has ended."""
        with self._lock:
            self._closed = True
            queued, self._queue = list(self._queue), deque()
            threads = dict(self._threads)
        for running in queued:
            running.end(**interrupted())
        for running in threads.values():
            running.stop.set()
        self._transport.close()
        for thread in threads:
            thread.join()


class _FirstMark:
    """A clock that gives up `hold` when work is first marked: the hand-over from who created the execution."""

    def __init__(self, clock: Clock, hold: Hold) -> None:
        self._clock = clock
        self._hold = hold
        self._held = True
        self.now = clock.now
        self.sleep = clock.sleep
        self.waiting = clock.waiting
        self.hold = clock.hold

    @contextmanager
    def busy(self) -> Iterator[None]:
        with self._clock.busy():
            if self._held:
                self._held = False
                self._hold.off()
            yield


class _Children:
    """`experimental.executions.run` and `map` for workflows of the same emulator."""

    def __init__(self, runner: Runner, parent: str) -> None:
        self._runner = runner
        self._parent = parent

    def run(
        self, workflow_id: str, location: str | None, project: str | None, argument: Value, seconds: float, stop: Stop
    ) -> Value:
        """The result of one execution. Raises WorkflowError: HttpError if it cannot be started, OperationError if it
        does not succeed, TimeoutError after `seconds`; it goes on then."""
        starter = self._runner.starter
        assert starter is not None
        _, own_project, _, own_location, *_ = self._parent.split("/")
        name = f"projects/{project or own_project}/locations/{location or own_location}/workflows/{workflow_id}"
        try:
            child = starter.create_execution({"parent": name, "execution": {"argument": to_json(argument)}})
        except ApiError as error:
            raise http_error(error.http_status, {}, error.as_json(), error.message) from None
        record = starter.wait(child["name"], seconds, stop)
        if stop.is_set():
            return None
        if record["state"] in ("ACTIVE", "QUEUED"):
            raise WorkflowError.of("TimeoutError", f"{record['name']} has not ended within {seconds:g} seconds")
        if record["state"] != "SUCCEEDED":
            message = f"execution {record['name']} ended {record['state']}"
            raise WorkflowError.of("OperationError", message, operation=record, error=record.get("error", {}))
        return from_json(record["result"])


def environment(execution: str, workflow: Mapping[str, Any]) -> dict[str, str]:
    """The variables of sys.get_env: Workflows' own, and the workflow's."""
    _, project, _, location, _, workflow_id, _, execution_id = execution.split("/")
    return {
        **workflow.get("userEnvVars", {}),
        "GOOGLE_CLOUD_LOCATION": location,
        "GOOGLE_CLOUD_PROJECT_ID": project,
        "GOOGLE_CLOUD_PROJECT_NUMBER": project_number(project),
        "GOOGLE_CLOUD_SERVICE_ACCOUNT_NAME": workflow["serviceAccount"].rpartition("/")[2],
        "GOOGLE_CLOUD_WORKFLOW_ID": workflow_id,
        "GOOGLE_CLOUD_WORKFLOW_EXECUTION_ID": execution_id,
        "GOOGLE_CLOUD_WORKFLOW_REVISION_ID": workflow["revisionId"],
    }


def interrupted() -> Resource:
    """The outcome of an execution whose emulator ended before it did."""
    return failed("the emulator ended while this execution was active; start it again")


def failed(message: str, context: str = "") -> Resource:
    """The outcome of an execution that failed for a reason of the emulator's."""
    payload = json.dumps({"message": message, "tags": ["SystemError"]})
    return {"state": "FAILED", "error": {"context": context or message, "payload": payload}}


def _error(report: engine.ErrorReport) -> Resource:
    frames = [
        {
            "step": frame.step,
            "routine": frame.routine,
            "position": {"line": str(frame.line), "column": str(frame.column)},
        }
        for frame in report.stack
    ]
    return {"payload": report.payload, "context": report.context, "stackTrace": {"elements": frames}}
