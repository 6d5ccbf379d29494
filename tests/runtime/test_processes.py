"""A step as it is deployed: its own process on functions-framework, killed in the middle of its work."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.runtime.bench import Bench

PROJECT = Path(__file__).parents[2] / "{{cookiecutter.project_slug}}"

MAIN = """
import os, pathlib, time
from exactly_once import step

@step(on_unknown=os.environ["ON_UNKNOWN"])
def main(run, payload):
    effects = pathlib.Path(os.environ["EFFECTS"])
    with effects.open("a") as ledger:
        ledger.write(f"{run.idempotency_key} {run.attempt}\\n")
    while payload == "work" and run.attempt == 1:
        time.sleep(0.05)
    return run.attempt
"""


class Service:
    """One step's process, started again when it has been killed."""

    def __init__(self, bench: Bench, folder: Path, on_unknown: str) -> None:
        self.effects = folder / "effects"
        self.effects.touch()
        (folder / "main.py").write_text(MAIN)
        self._folder = folder
        self._env = {
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "FIRESTORE_EMULATOR_HOST": bench.address,
            "GOOGLE_CLOUD_PROJECT": "test-project",
            "PIPELINE": bench.pipeline,
            "STEP": "charge",
            "EFFECTS": str(self.effects),
            "ON_UNKNOWN": on_unknown,
            "THREADS": "4",
        }

    def start(self) -> None:
        with socket.socket() as free:  # a port of its own each time: the last one's may still be closing
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        framework = str(Path(sys.executable).parent / "functions-framework")
        self.log = (self._folder / "log").open("a+")
        self.process = subprocess.Popen(
            [framework, "--source", "main.py", "--target", "main", "--host", "127.0.0.1", "--port", str(self.port)],
            cwd=self._folder,
            env=self._env,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while True:
            assert self.process.poll() is None, (self._folder / "log").read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def post(self, body: Any) -> requests.Response:
        return requests.post(f"http://127.0.0.1:{self.port}/", json=body, timeout=60)

    def seen(self) -> list[str]:
        return self.effects.read_text().splitlines()


@pytest.fixture(params=["retry", "hold"])
def service(bench: Bench, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    made = Service(bench, tmp_path, request.param)
    made.start()
    yield made
    made.kill()


def test_killed_in_the_middle_of_its_work(bench: Bench, service: Service, request: pytest.FixtureRequest) -> None:
    """Busy while the lease runs; then repeated with the same key, or held, as the author chose."""
    broken: list[bool] = []

    def first() -> None:
        try:
            service.post(bench.body("work"))
        except requests.ConnectionError:
            broken.append(True)

    caller = threading.Thread(target=first)
    caller.start()
    while not service.seen():
        time.sleep(0.02)
    service.kill()
    caller.join()
    assert broken == [True]
    service.start()
    assert service.post(bench.body("work")).status_code == 409
    bench.age()
    answer = service.post(bench.body("work"))
    again = service.post(bench.body("work"))
    if "retry" in request.node.name:
        assert (answer.status_code, answer.json()["result"]) == (200, 2)
        assert again.json()["replayed"]
        assert [line.split()[1] for line in service.seen()] == ["1", "2"]
        assert len({line.split()[0] for line in service.seen()}) == 1
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "held")
        assert again.status_code == 422
        assert len(service.seen()) == 1
    lines = [json.loads(line) for line in (service.effects.parent / "log").read_text().splitlines() if line[0] == "{"]
    assert "step.taken_over" in {line["event"] for line in lines}
