"""After an unknown outcome the outside system is asked before anything is sent again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from exactly_once.identity import RunContext
from tests.conftest import Step

STEP = Path(__file__).stem.removeprefix("test_")
"""The file is named after the step."""


class Outside:
    """A system that can be asked for an effect by its reference. `answers`: what it does next; it keeps the last."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.answers = ["take"]
        self.finds = True
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = outside.answers.pop(0) if len(outside.answers) > 1 else outside.answers[0]
                if answer != "lose":
                    outside.effects.append(body["reference"])
                self._say(200 if answer == "take" else 500, body["reference"])

            def do_GET(self) -> None:
                key = self.path.rpartition("/")[2]
                self._say((200 if key in outside.effects else 404) if outside.finds else 503, key)

            def _say(self, status: int, key: str) -> None:
                body = json.dumps({"id": f"of {key}"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()


@pytest.fixture
def outside() -> Iterator[Outside]:
    outside = Outside()
    yield outside
    outside.server.shutdown()
    outside.server.server_close()


@pytest.fixture
def made(step: Callable[..., Step], outside: Outside) -> Step:
    return step(STEP, **{f"{STEP.upper()}_URL": f"http://127.0.0.1:{outside.server.server_port}"})


def test_what_is_there_is_taken_as_done(made: Step, outside: Outside, run: RunContext) -> None:
    outside.answers = ["take, but say 500", "take"]
    answers = [made(run, {}) for _ in range(3)]
    assert answers[-1].status == 200
    assert answers[-1].result == {"id": f"of {outside.effects[0]}"}
    assert len(outside.effects) == 1


def test_what_is_not_there_is_done_again(made: Step, outside: Outside, run: RunContext) -> None:
    outside.answers = ["lose", "take"]
    answers = [made(run, {}) for _ in range(3)]
    assert answers[-1].status == 200
    assert len(outside.effects) == 1


def test_what_nobody_knows_is_held(made: Step, outside: Outside, run: RunContext) -> None:
    outside.answers, outside.finds = ["take, but say 500"], False
    answers = [made(run, {}) for _ in range(3)]
    assert (answers[-1].status, answers[-1].error) == (422, "held")
    assert len(outside.effects) == 1


def test_an_empty_setting_is_said(step: Callable[..., Step], run: RunContext) -> None:
    answer = step(STEP, **{f"{STEP.upper()}_URL": ""})(run)
    assert (answer.status, answer.error) == (500, "retry")
    assert f"{STEP.upper()}_URL is empty" in answer.body["error"]["message"]
