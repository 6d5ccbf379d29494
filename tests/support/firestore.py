"""Firestore for tests: the embedded server and Google's own emulator, each started once for a whole run of pytest.

`firestore_host` runs a test against both; `embedded_firestore` and `official_firestore` are one of them. All give
host:port, for FIRESTORE_EMULATOR_HOST or for a client of one's own. Tests share the servers, so each uses names of its
own: `collection` makes one.

Google's emulator is the one at FIRESTORE_EMULATOR_HOST, or gcloud's copy run with Java; where there is neither, its
tests are skipped, and the header and the summary of the run say so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

PROJECT = Path(__file__).parents[2] / "{{cookiecutter.project_slug}}"
RUN_FOLDER = "FIRESTORE_TESTS_FOLDER"
"""Environment variable: the folder that all processes of one pytest run share."""

OUTSIDE = os.environ.get("FIRESTORE_EMULATOR_HOST")
"""Read once: tests set the variable for their own clients."""

KINDS = ("embedded", "official")
JAR = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
MAIN_CLASS = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
JAVA_FLAGS = ("-Duser.language=en", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A small heap and a quick start; the same as the benchmark uses."""

START_SECONDS = 60.0


def embedded_command(*arguments: str) -> list[str]:
    """The embedded server's command line; its working directory has to be PROJECT."""
    return [sys.executable, "-m", "tools.emulators.firestore", *arguments]


def official_jar() -> Path | None:
    """gcloud's copy of Google's emulator, if it is installed."""
    gcloud = shutil.which("gcloud")
    roots = [Path(gcloud).resolve().parents[1]] if gcloud else []
    if gcloud and not (roots[0] / JAR).is_file():
        asked = subprocess.run(
            [gcloud, "info", "--format=value(installation.sdk_root)"], capture_output=True, text=True, check=False
        )
        roots.append(Path(asked.stdout.strip() or "/nonexistent"))
    return next((root / JAR for root in roots if (root / JAR).is_file()), None)


def official_command(jar: Path, port: int, flags: tuple[str, ...] = JAVA_FLAGS) -> list[str]:
    return ["java", *flags, "-cp", str(jar), MAIN_CLASS, "start", "--host", "127.0.0.1", "--port", str(port)]


def why_no_official() -> str | None:
    """Why Google's emulator cannot be used here; None if it can."""
    if OUTSIDE:
        return None
    if shutil.which("java") is None:
        return "no FIRESTORE_EMULATOR_HOST and no Java"
    if official_jar() is None:
        return "no FIRESTORE_EMULATOR_HOST and no gcloud with its cloud-firestore-emulator"
    return None


def start_embedded(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A server of one's own, and its address. End it with `process.terminate()` and `process.wait()`."""
    process = subprocess.Popen(
        embedded_command(*arguments), cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    ready = process.stdout.readline()
    assert ready, f"the server ended with {process.wait()}"
    return process, json.loads(ready)["address"]


def start_official(flags: tuple[str, ...] = JAVA_FLAGS) -> tuple[subprocess.Popen[bytes], str]:
    """Google's emulator on a free port, and its address."""
    jar = official_jar()
    assert jar
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        official_command(jar, port, flags),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until_it_answers(f"127.0.0.1:{port}", process)
    return process, f"127.0.0.1:{port}"


def wait_until_it_answers(address: str, process: subprocess.Popen[Any]) -> None:
    with grpc.insecure_channel(address) as channel:
        ready = grpc.channel_ready_future(channel)
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(grpc.FutureTimeoutError):
                ready.result(timeout=0.2)
                return
        raise AssertionError(f"nothing answers at {address}")


def client(address: str, project: str = "test-project", database: str = "(default)") -> Any:
    """google-cloud-firestore's client for one server, whatever the environment says. Close it."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import firestore

    with _emulator_host(address):
        made = firestore.Client(project=project, credentials=AnonymousCredentials(), database=database)
        _ = made._firestore_api  # made at first use, from the environment
        return made


def async_client(address: str, project: str = "test-project") -> Any:
    """The async client for one server; call it within a running event loop."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import firestore

    with _emulator_host(address):
        made = firestore.AsyncClient(project=project, credentials=AnonymousCredentials())
        _ = made._firestore_api
        return made


@contextlib.contextmanager
def _emulator_host(address: str) -> Iterator[None]:
    before = os.environ.get("FIRESTORE_EMULATOR_HOST")
    os.environ["FIRESTORE_EMULATOR_HOST"] = address
    try:
        yield
    finally:
        os.environ.pop("FIRESTORE_EMULATOR_HOST")
        if before is not None:
            os.environ["FIRESTORE_EMULATOR_HOST"] = before


# -- one server of each kind a run, shared by its processes


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[RUN_FOLDER] = tempfile.mkdtemp(prefix="firestore-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or RUN_FOLDER not in os.environ:
        return
    folder = Path(os.environ.pop(RUN_FOLDER))
    for noted in folder.glob("*.json"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(json.loads(noted.read_text())["group"], signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _shared(kind: str) -> str:
    """The address of this run's server, started by whoever needs it first."""
    folder = Path(os.environ[RUN_FOLDER])
    noted = folder / f"{kind}.json"
    with (folder / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not noted.exists():
            process, address = _launch(kind, folder)
            noted.write_text(json.dumps({"address": address, "group": process.pid}))
    address = json.loads(noted.read_text())["address"]
    assert isinstance(address, str)
    return address


def _launch(kind: str, folder: Path) -> tuple[subprocess.Popen[Any], str]:
    """In a process group of its own, with a watchman that ends it should this run be killed."""
    process: subprocess.Popen[Any]
    if kind == "official":
        process, address = start_official()
    else:
        process = subprocess.Popen(
            embedded_command("--file", str(folder / "embedded.db")),
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout
        address = json.loads(process.stdout.readline())["address"]
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    watch = f"while kill -0 {run} && kill -0 {process.pid}; do sleep 1; done 2>/dev/null; kill -9 -{process.pid}"
    subprocess.Popen(
        ["sh", "-c", watch],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process, address


@pytest.fixture(scope="session")
def embedded_firestore() -> str:
    """host:port of the embedded server."""
    return _shared("embedded")


@pytest.fixture(scope="session")
def official_firestore() -> str:
    """host:port of Google's emulator; skips the test where there is none."""
    if reason := why_no_official():
        pytest.skip(f"Google's Firestore emulator: {reason}")
    return OUTSIDE or _shared("official")


@pytest.fixture(params=KINDS)
def firestore_kind(request: pytest.FixtureRequest) -> str:
    """Which server `firestore_host` is: "embedded" or "official"."""
    kind = str(request.param)
    request.node.user_properties.append(("firestore", kind))
    return kind


@pytest.fixture
def firestore_host(firestore_kind: str, request: pytest.FixtureRequest) -> str:
    """host:port of each server in turn."""
    return str(request.getfixturevalue(f"{firestore_kind}_firestore"))


@pytest.fixture
def collection() -> str:
    """A name that no other test uses."""
    return f"c{uuid.uuid4().hex[:12]}"


@pytest.fixture
def connect() -> Iterator[Callable[..., Any]]:
    """`client`, closed at the end of the test."""
    made: list[Any] = []

    def make(address: str, project: str = "test-project", database: str = "(default)") -> Any:
        made.append(client(address, project, database))
        return made[-1]

    yield make
    for each in made:
        each.close()


# -- what the run says about it


def pytest_report_header(config: pytest.Config) -> str:
    if OUTSIDE:
        return f"firestore: embedded; official at {OUTSIDE}"
    reason = why_no_official()
    return f"firestore: embedded; official {'(gcloud and Java)' if reason is None else f'skipped: {reason}'}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many tests ran against which server."""
    ran: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            if getattr(report, "when", None) == "call":
                ran.update(value for name, value in report.user_properties if name == "firestore")
    if ran:
        counts = ", ".join(f"{ran[kind]} against the {kind} server" for kind in KINDS)
        reason = "" if ran["official"] else f" ({why_no_official() or 'none was selected'})"
        terminalreporter.write_line(f"firestore: {counts}{reason}")
