"""What the tests of the chain share: a clock that jumps, an HTTP target, and a project to run."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from tools.emulators.clock import JumpClock, OffsetFile
from tools.emulators.events import Collector, EventLog
from tools.emulators.faults import Plan
from tools.emulators.front import Front, Route
from tools.emulators.hosting import Host, bind
from tools.emulators.http_faults import HttpFaults
from tools.emulators.services import Guard, Service, function
from tools.emulators.tokens import Tokens

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def jump_clock(tmp_path: Path) -> Iterator[JumpClock]:
    clock = JumpClock(OffsetFile(tmp_path / "offset"), quiet=0.02)
    yield clock
    clock.stop()


@pytest.fixture
def event_log(jump_clock: JumpClock) -> EventLog:
    return EventLog(jump_clock)


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(SECRET)


class Target:
    """An HTTP server that notes its requests and answers what the test says, the last answer for ever."""

    def __init__(self, clock: JumpClock) -> None:
        self.clock = clock
        self.requests: list[tuple[float, dict[str, str]]] = []
        self.answers: list[int | Callable[[Request], Awaitable[Response | None]]] = [200]
        self.host = Host(clock)
        self.port = self.host.add(self._part, bind(0))
        self.url = f"http://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self.host.start()

    async def _part(self, request: Request) -> Response | None:
        with self._lock:
            self.requests.append((self.clock.now(), dict(request.headers)))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Response(status_code=answer) if isinstance(answer, int) else await answer(request)

    def gaps(self) -> list[float]:
        """Seconds between one request and the next."""
        times = [time for time, _ in self.requests]
        return [later - earlier for earlier, later in pairwise(times)]


@pytest.fixture
def target(jump_clock: JumpClock) -> Iterator[Target]:
    target = Target(jump_clock)
    yield target
    target.host.stop()


FUNCTION = """
import json, os, sys, time
from pathlib import Path

RELEASE = Path(os.environ["ROOM"]) / "release"

def main(request):
    what = request.get_json(silent=True) or {}
    sys.stdout.write(json.dumps({"event": "body", "what": what, "pid": os.getpid()}) + "\\n")  # one write a line
    if what.get("fail"):
        raise RuntimeError("the body fails")
    while what.get("wait") and not RELEASE.exists():
        time.sleep(0.005)
    return {"pid": os.getpid(), "trace": request.headers.get("X-Cloud-Trace-Context")}
"""
"""A function that can be told to fail, or to work until a file appears."""


class Cloud:
    """A front with one function, `step`, that `workflows` may call."""

    def __init__(self, room: Path, clock: JumpClock, tokens: Tokens, billing: str) -> None:
        self.room, self.clock, self.tokens = room, clock, tokens
        self.log = EventLog(clock)
        self.plan = Plan()
        self.guard = Guard()
        self.collector = Collector(self.log)
        self.host = Host(clock)
        (room / "main.py").write_text(FUNCTION)
        env = {**os.environ, "ROOM": str(room), "PYTHONUNBUFFERED": "1"}
        spec = function("step", room / "main.py", env, room, timeout=300)
        self.service = Service(spec, clock, self.log, self.collector, self.guard)
        self.faults = HttpFaults(self.host, self.plan, clock, self, caller_is_a_process=False)
        listening = bind(0)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        front = Front(self.host, self.faults, tokens, clock, self.log, billing)
        self.host.add(front.part(Route(self.service, self.url, {"w@p": "workflows"})), listening)
        self.host.start()

    def kill(self, name: str) -> None:
        {"step": self.service}[name].kill()

    def freeze(self, name: str) -> None:
        {"step": self.service}[name].freeze()

    def resume(self, name: str) -> None:
        {"step": self.service}[name].resume()

    def call(self, payload: dict[str, object] | None = None, token: dict[str, str] | None = None) -> httpx.Response:
        claims = {"audience": self.url, "email": "w@p", **(token or {})}
        headers = {"Authorization": f"Bearer {self.tokens.mint(now=self.clock.now(), **claims)}"}
        return httpx.post(self.url, json=payload or {}, headers=headers, timeout=30, trust_env=False)

    def bodies(self) -> int:
        """How often a body has begun."""
        self.collector.drain()
        return sum(event["event"] == "body" for event in self.log.all())

    def release(self) -> None:
        """Let the bodies that wait go on."""
        (self.room / "release").touch()

    def events(self) -> list[str]:
        self.collector.drain()
        return [event["event"] for event in self.log.all()]

    def reset(self) -> None:
        """For another test: no faults and no events."""
        self.plan.clear()
        self.collector.drain()
        self.log.clear()

    def stop(self) -> None:
        self.service.stop()
        self.host.stop()
        self.collector.stop()
        self.guard.close()


@pytest.fixture
def cloud(tmp_path: Path, jump_clock: JumpClock, tokens: Tokens, request: pytest.FixtureRequest) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path, jump_clock, tokens, getattr(request, "param", "instance"))
    yield cloud
    cloud.stop()


@pytest.fixture(scope="module")
def one_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    room = tmp_path_factory.mktemp("cloud")
    clock = JumpClock(OffsetFile(room / "offset"), quiet=0.02)
    cloud = Cloud(room, clock, Tokens(SECRET), "instance")
    yield cloud
    cloud.stop()
    clock.stop()


@pytest.fixture
def shared_cloud(one_cloud: Cloud) -> Cloud:
    """One for all tests of a module that leave the function's process as it was."""
    one_cloud.reset()
    return one_cloud
