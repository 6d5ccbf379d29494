"""What the project's tests share: Firestore on this machine, and the steps as they answer requests.

    def test_it(step, database, receiver): ...

`step("reserve_stock")` is the function itself, called as Workflows calls it; each test has a database of its own.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import flask
import pytest
from google.cloud import firestore

from exactly_once.identity import RunContext, slot_run
from tools.settings import Settings, load

ROOT = Path(__file__).resolve().parents[1]
SLOT = datetime(2026, 1, 16, 2, tzinfo=UTC)


@pytest.fixture(scope="session")
def settings() -> Settings:
    return load(ROOT)


@pytest.fixture(scope="session")
def firestore_host() -> Iterator[str]:
    """host:port of a Firestore that lives as long as the tests."""
    command = [sys.executable, "-m", "tools.emulators.firestore"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    yield json.loads(server.stdout.readline())["address"]
    server.terminate()
    server.wait()


_databases = itertools.count(1)


@pytest.fixture
def database(firestore_host: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[firestore.Client]:
    """A client of an empty database, which is also the steps'."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_host)
    client = firestore.Client(project="test-project", database=f"test-{next(_databases)}")
    yield client
    client.close()


class Answer(NamedTuple):
    """What a step answered: the HTTP status and the body's JSON."""

    status: int
    body: dict[str, Any]

    @property
    def result(self) -> Any:
        return self.body["result"]

    @property
    def error(self) -> str:
        """The code of the refusal."""
        return str(self.body["error"]["code"])


class Step:
    """One step's function, in this process. `module` is its main.py, to call or to patch what is in it."""

    def __init__(self, name: str, module: ModuleType, environment: dict[str, str], patch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.module = module
        self._environment = environment
        self._patch = patch
        self._app = flask.Flask(name)
        self._app.add_url_rule("/", view_func=lambda: module.main(flask.request), methods=["POST"])

    def __call__(self, run: RunContext, payload: Any = None, item: str | None = None) -> Answer:
        """One call by the workflow."""
        for key, value in self._environment.items():
            self._patch.setenv(key, value)
        self._patch.setattr("exactly_once.runtime._current", None)  # as a process of the step's own would start
        body = {"run_id": run.run_id, "step": self.name, "input": payload, "run": run.to_json()}
        answer = self._app.test_client().post("/", json=body if item is None else {**body, "item": item})
        return Answer(answer.status_code, answer.get_json())


@pytest.fixture
def step(database: firestore.Client, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Step]:
    """`step("reserve_stock", SETTING="value")`: the step, with settings of the test's own. Skips if it is not there."""

    def step(name: str, **changes: str) -> Step:
        if name not in settings.steps:
            pytest.skip(f"the project has no step {name}")
        place = {"GOOGLE_CLOUD_PROJECT": "test-project", "FIRESTORE_DATABASE": database._database}
        environment = {**settings.step_environment(name), **place, **changes}
        return Step(name, module(ROOT / "functions" / name / "main.py"), environment, monkeypatch)

    return step


def module(file: Path) -> ModuleType:
    """A fresh import of `file`."""
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def run(settings: Settings) -> RunContext:
    """The run of `SLOT`."""
    return slot_run(settings.pipeline, settings.scope, settings.job, SLOT, settings.time_zone)


class Receiver:
    """An outside system. It notes its calls and gives `answers` in turn, the last one for ever; None breaks the
    connection once the call has been noted."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        """Path, idempotency key and body of each."""
        self.answers: list[tuple[int, bytes] | None] = [(200, b'{"id": "pay-1"}')]
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.calls.append((self.path, self.headers["Idempotency-Key"], body))
                answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(answer[1])))
                self.end_headers()
                self.wfile.write(answer[1])

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        """From now on nobody listens."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
