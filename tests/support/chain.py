"""What the tests of the chain share: a clock that jumps, an HTTP target, and a project to run."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tools.emulators.clock import JumpClock, OffsetFile
from tools.emulators.events import EventLog
from tools.emulators.hosting import Host, bind
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
