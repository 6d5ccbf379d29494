"""Firestore for the chain: the embedded one as a child process, Google's emulator, or one that runs already."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.emulators.clock import Clock, SystemClock
from tools.emulators.events import Collector, EventLog
from tools.emulators.services import START_SECONDS, Child, Guard, StartError, free_port
from tools.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `tools`."""

NAME = "firestore"
"""The name among services, events and faults."""

JAR = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
MAIN_CLASS = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
JAVA_FLAGS = ("-Duser.language=en", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A small heap and a quick start."""

DATABASE_FILE = "firestore.db"
OFFSET_FILE = "clock"


class NoEmulatorError(UserError):
    """Google's emulator was asked for and is not installed."""


class FirestoreProcess:
    """One Firestore on a fixed address, started again at once when it is killed: the service is never down for long."""

    def __init__(self, command: list[str], port: int, log: EventLog, collector: Collector, guard: Guard) -> None:
        self.address = f"127.0.0.1:{port}"
        self._command = command
        self._port = port
        self._log = log
        self._collector = collector
        self._guard = guard
        self._lock = threading.Lock()
        self._child = self._spawn()

    def wait(self) -> None:
        """Until it listens. Raises StartError."""
        until = time.monotonic() + START_SECONDS
        while self._child.alive() and time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.01)
        self._child.kill()
        self._collector.drain()
        said = [str(e.get("message")) for e in self._log.all() if e["service"] == NAME and e["event"] == "output"]
        raise StartError("Firestore did not start:\n" + ("\n".join(said[-20:]) or "it said nothing"))

    def kill(self) -> None:
        """SIGKILL, and a new process on the same data and address."""
        with self._lock:
            self._child.kill()
            self._log.add(NAME, "process.killed", pid=self._child.pid)
            self._child = self._spawn()
            self.wait()

    def freeze(self) -> None:
        self._child.signal(signal.SIGSTOP)
        self._log.add(NAME, "process.frozen", pid=self._child.pid)

    def resume(self) -> None:
        self._child.signal(signal.SIGCONT)
        self._log.add(NAME, "process.resumed", pid=self._child.pid)

    def stop(self) -> None:
        self._child.terminate()

    def _spawn(self) -> Child:
        return Child(NAME, self._command, os.environ, ROOT, self._collector, self._guard)


def embedded(state: Path, port: int, log: EventLog, collector: Collector, guard: Guard) -> FirestoreProcess:
    """The project's own emulator on `state`/firestore.db; it reads the chain's time where there is a clock file."""
    command = [sys.executable, "-m", "tools.emulators.firestore", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--file", str(state / DATABASE_FILE)]
    if (state / OFFSET_FILE).exists():
        command += ["--clock-file", str(state / OFFSET_FILE)]
    return FirestoreProcess(command, port, log, collector, guard)


def official(port: int, log: EventLog, collector: Collector, guard: Guard) -> FirestoreProcess:
    """Google's emulator; it keeps nothing when it ends. Raises NoEmulatorError."""
    if not shutil.which("java"):
        raise NoEmulatorError("Google's Firestore emulator needs Java (version 21 or later on PATH)")
    gcloud = shutil.which("gcloud")
    jar = Path(gcloud).resolve().parents[1] / JAR if gcloud else None
    if jar is None or not jar.exists():
        raise NoEmulatorError(
            "Google's Firestore emulator is not installed: gcloud components install cloud-firestore-emulator "
            "(or start it elsewhere and give its host:port)"
        )
    command = ["java", *JAVA_FLAGS, "-cp", str(jar), MAIN_CLASS, "--host", "127.0.0.1", "--port", str(port)]
    return FirestoreProcess(command, port, log, collector, guard)


def elsewhere(address: str) -> str:
    """`address` (host:port), where a Firestore runs already. Raises NoEmulatorError if nothing listens there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise NoEmulatorError(f"--firestore {address}: write embedded, official or the HOST:PORT of one that runs")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        raise NoEmulatorError(f"no Firestore answers on {address}: {error.strerror or error}") from None
    return address


@contextmanager
def firestore_alone(state: Path, clock: Clock | None = None) -> Iterator[str]:
    """The embedded Firestore without a chain, on the same data: its address (host:port)."""
    state.mkdir(parents=True, exist_ok=True)
    log = EventLog(clock or SystemClock())
    guard, collector = Guard(), Collector(log)
    try:
        firestore = embedded(state, free_port(), log, collector, guard)
        try:
            firestore.wait()
            yield firestore.address
        finally:
            firestore.stop()
    finally:
        collector.stop()
        guard.close()
