"""A world for executions that needs no network and no waiting."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from tools.emulators.clock import Hold, SystemClock
from tools.emulators.workflows import engine, errors
from tools.emulators.workflows.definition import load
from tools.emulators.workflows.limits import Limits
from tools.emulators.workflows.runtime import Request, Response, Stop
from tools.emulators.workflows.values import Value, to_json

START = 1_768_442_400.0  # 2026-01-15T02:00:00Z
ENV = {
    "GOOGLE_CLOUD_PROJECT_ID": "demo",
    "GOOGLE_CLOUD_PROJECT_NUMBER": "123456789012",
    "GOOGLE_CLOUD_LOCATION": "europe-west1",
    "GOOGLE_CLOUD_WORKFLOW_ID": "orders",
    "GOOGLE_CLOUD_WORKFLOW_EXECUTION_ID": "00000000-0000-4000-8000-000000000001",
    "GOOGLE_CLOUD_WORKFLOW_REVISION_ID": "000001-abc",
    "GOOGLE_CLOUD_SERVICE_ACCOUNT_NAME": "orders@demo.iam.gserviceaccount.com",
    "STEP_URLS": '{"reserve_stock":"https://reserve.example"}',
}


@dataclass(eq=False)
class _Sleeper:
    deadline: float
    wake: threading.Event | None
    fired: bool = False


class VirtualClock:
    """Time stands still while anybody is busy, and jumps to the next deadline the moment nobody is."""

    def __init__(self, start: float = START) -> None:
        self._now = start
        self._state = threading.Condition()
        self._marks = 0
        self._sleepers: list[_Sleeper] = []
        self._own = threading.local()

    def now(self) -> float:
        with self._state:
            return self._now

    @contextmanager
    def busy(self) -> Iterator[None]:
        self._mark(1)
        try:
            yield
        finally:
            self._mark(-1)

    def waiting(self) -> AbstractContextManager[None]:
        return SystemClock().waiting()

    def hold(self) -> Hold:
        return SystemClock().hold()

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> bool:
        own = self._depth()
        with self._state:
            sleeper = _Sleeper(self._now + max(0.0, seconds), wake)
            self._sleepers.append(sleeper)
            self._marks -= own
            self._advance()
            while not sleeper.fired and not (wake is not None and wake.is_set()):
                self._state.wait(0.0005)
                self._advance()
            self._sleepers.remove(sleeper)
            self._marks += own - sleeper.fired
        return wake is not None and wake.is_set()

    def _depth(self) -> int:
        return getattr(self._own, "depth", 0)

    def _mark(self, change: int) -> None:
        self._own.depth = self._depth() + change
        with self._state:
            self._marks += change
            self._advance()

    def _advance(self) -> None:
        if self._marks > 0 or any(sleeper.fired or self._awake(sleeper) for sleeper in self._sleepers):
            return
        if self._sleepers:
            self._now = max(self._now, min(sleeper.deadline for sleeper in self._sleepers))
            for sleeper in self._sleepers:
                if sleeper.deadline <= self._now:
                    sleeper.fired = True
                    self._marks += 1
            self._state.notify_all()

    @staticmethod
    def _awake(sleeper: _Sleeper) -> bool:
        return sleeper.wake is not None and sleeper.wake.is_set()


@dataclass
class ScriptedTransport:
    """Answers from a list, in order; the last one again and again. `delay` is in virtual seconds, not busy."""

    clock: VirtualClock
    answers: list[dict[str, Value]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, request: Request) -> Response:
        with self._lock:
            self.requests.append(request)
            answer = self._answer(request)
        if "delay" in answer:
            self.clock.sleep(answer["delay"])
        if "fails" in answer:
            failure: type[errors.TransportError] = getattr(errors, answer["fails"])
            raise failure(answer.get("message", "scripted"))
        body = answer.get("body", "")
        headers = {"Content-Type": "application/json"} if not isinstance(body, str) else {"Content-Type": "text/plain"}
        text = body if isinstance(body, str) else to_json(body)
        return Response(answer.get("code", 200), {**headers, **answer.get("headers", {})}, text.encode())

    def _answer(self, request: Request) -> dict[str, Value]:
        for answer in self.answers:
            if answer.get("url") == request.url:
                return answer
        anonymous = [answer for answer in self.answers if "url" not in answer]
        if not anonymous:
            raise AssertionError(f"no answer is scripted for {request.method} {request.url}")
        return anonymous[min(len(self.requests), len(anonymous)) - 1]


class Mailbox:
    """Callback endpoints; `arrivals` maps the method of an endpoint to what comes in, and after how many seconds."""

    def __init__(self, clock: VirtualClock, arrivals: dict[str, tuple[float, Value]]) -> None:
        self._clock = clock
        self._arrivals = arrivals
        self._urls: dict[str, str] = {}

    def create(self, method: str) -> str:
        url = f"https://callbacks.example/{len(self._urls) + 1}"
        self._urls[url] = method
        return url

    def wait(self, url: str, seconds: float, stop: Stop) -> Value | None:
        after, value = self._arrivals.get(self._urls[url], (float("inf"), None))
        self._clock.sleep(min(seconds, after), stop.event)
        return value if after <= seconds else None


class Offspring:
    """Executions of other workflows: each `workflow_id` is a function of its argument."""

    def __init__(self, workflows: dict[str, Callable[[Value], Value]]) -> None:
        self._workflows = workflows

    def run(
        self, workflow_id: str, location: str | None, project: str | None, argument: Value, seconds: float, stop: Stop
    ) -> Value:
        if workflow_id not in self._workflows:
            raise errors.WorkflowError.of("HttpError", "not found", code=404)
        return self._workflows[workflow_id](argument)


def world(
    answers: list[dict[str, Value]] | None = None, *, limits: Limits | None = None, seed: int = 1
) -> tuple[engine.World, ScriptedTransport, VirtualClock]:
    """A world with scripted answers, its transport and its clock."""
    clock = VirtualClock()
    transport = ScriptedTransport(clock, answers or [])
    made = engine.World(clock, transport, random.Random(seed), limits=limits or Limits())
    return made, transport, clock


def run(
    source: str, argument: Value = None, *, answers: list[dict[str, Value]] | None = None, limits: Limits | None = None
) -> engine.Outcome:
    """The outcome of a source."""
    made, _, _ = world(answers, limits=limits)
    return engine.execute(load(source, connectors=lambda name: None), argument, made, env=ENV)


def result(source: str, argument: Value = None, *, answers: list[dict[str, Value]] | None = None) -> Value:
    """The result of a source that must succeed."""
    outcome = run(source, argument, answers=answers)
    assert outcome.error is None, outcome.error
    return outcome.result
