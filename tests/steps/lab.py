"""One step of a template as a process that can be killed, before a Firestore whose clock can be moved on."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exactly_once.identity import manual_run, parse_instant
from tests.support.firestore import PROJECT, start_embedded
from tools.emulators.clock import OffsetFile, SystemClock
from tools.emulators.faults import Action, Fault, Plan
from tools.emulators.wire import GrpcWire
from tools.templates import BUILT_IN

LEASE = 330
START_SECONDS = 90.0
RUN = manual_run("lab", "test-project/region/test", "a run", slot=parse_instant("2026-01-15T02:00:00Z"))


@dataclass
class Lab:
    """`environment` is added to the function's. The step's name is the template's."""

    template: str
    room: Path
    environment: dict[str, str] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)

    def __post_init__(self) -> None:
        self._open = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._lock = threading.Lock()  # the wire kills from a thread of its own

    def __enter__(self) -> Lab:
        self._offset = OffsetFile(self.room / "offset")
        firestore, self.address = start_embedded("--clock-file", str(self.room / "offset"))
        self._open.callback(_end, firestore)
        wire = GrpcWire(self.address, self.template, "firestore", self.plan, SystemClock(), self)
        self._wire = wire.start()
        self._open.callback(wire.stop)
        self._open.callback(self.kill, self.template)
        # functions-framework imports what lies beside main.py, as the deployed function does
        shutil.copytree(BUILT_IN / self.template, self.room / "function")
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def kill_at_commit(self, nth: int, carried_out: bool = False) -> None:
        """Let the function die at the nth Commit that it sends from now on."""
        action = Action.KILL_AFTER if carried_out else Action.KILL_BEFORE
        self.plan.clear()
        self.plan.add(Fault(action, self.template, "firestore", "Commit", nth))

    def deliver(self, payload: Any, seconds: float = 120.0) -> tuple[int, Any]:
        """One call as run_step makes it: status and parsed body; (0, None) if the connection broke."""
        with self._lock:
            self._ensure()
        request = {"run_id": RUN.run_id, "step": self.template, "input": payload, "run": RUN.to_json()}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        try:
            connection.request("POST", "/", json.dumps(request), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()

    def deliver_until_done(self, payload: Any, times: int = 8) -> list[int]:
        """As the workflow's retries do, each after the lease; the statuses, the last of which is 200."""
        statuses = []
        for _ in range(times):
            status, body = self.deliver(payload)
            statuses.append(status)
            if status == 200:
                return statuses
            self.pass_time(LEASE + 10)
        raise AssertionError(f"{self.template} answered {statuses}, at last {body}")

    def pass_time(self, seconds: float) -> None:
        self._offset.write(self._offset.read() + int(seconds * 1e6))

    # what a wire may do to the caller

    def kill(self, name: str) -> None:
        with self._lock:
            if self._process:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                self._process = None

    def freeze(self, name: str) -> None:
        raise KeyError(name)

    resume = freeze

    def _ensure(self) -> None:
        if self._process and self._process.poll() is None:
            return
        self._port = free_port()
        command = ["functions-framework", "--source", "main.py", "--target", "main", "--port", str(self._port)]
        self._process = subprocess.Popen(
            [str(Path(sys.executable).with_name(command[0])), *command[1:]],
            cwd=self.room / "function",
            env={**os.environ, **self._told(), **self.environment},
            stdout=(self.room / "stdout").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wait_for_port(self._port, self._process)

    def _told(self) -> dict[str, str]:
        return {
            "PYTHONPATH": str(PROJECT),
            "PIPELINE": "lab",
            "SCOPE": "test-project/region/test",
            "GOOGLE_CLOUD_PROJECT": "test-project",
            "FIRESTORE_DATABASE": "(default)",
            "FIRESTORE_EMULATOR_HOST": self._wire,
            "RETENTION_DAYS": "90",
            "TIME_ZONE": "Etc/UTC",
            "STEP": self.template,
            "STEP_TIMEOUT": "300",
            "STEP_LEASE": str(LEASE),
            "MAX_ATTEMPTS": "10",
            "THREADS": "8",
        }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = START_SECONDS) -> None:
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"{process.args!r} does not answer on port {port}")


@contextmanager
def running(command: list[str], port: int, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """An emulator in a process group of its own, until the end of the block."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=log.open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for_port(port, process)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait()
