"""`./pipeline firestore`: the server by itself, and its faults set from outside."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.api_core import exceptions
from google.cloud import firestore as library

from tests.support.firestore import PROJECT

Run = Callable[..., tuple["subprocess.Popen[str]", dict[str, Any]]]


@pytest.fixture
def run() -> Iterator[Run]:
    """Starts the command; the process, and its ready line."""
    processes = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tools", "firestore", "--port", "0", *arguments],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout
        return process, json.loads(process.stdout.readline())

    yield start
    for process in processes:
        process.terminate()
        process.communicate()


def test_by_itself(run: Run, connect: Any, tmp_path: Path) -> None:
    process, ready = run("--file", str(tmp_path / "state.db"), "--ttl", "c=expire_at")
    connect(ready["address"]).document("c/a").create({"n": 1})
    process.terminate()
    assert process.wait() == 0
    _, ready = run("--file", str(tmp_path / "state.db"))
    assert connect(ready["address"]).document("c/a").get().get("n") == 1


def test_wrong_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "tools", "firestore", "--port", port, "--control-port", "0"]
        ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert port in ended.stderr.splitlines()[-1]


def test_faults_from_outside(run: Run, connect: Any) -> None:
    _, ready = run("--control-port", "0")
    document = connect(ready["address"]).document("c/a")
    with httpx.Client(base_url=ready["control"]) as control:
        lost = {"action": "lose_answer", "method": "Commit", "nth": 2, "code": "INTERNAL"}
        assert control.post("/faults", json=lost).json()["pending"] == [
            "lose_answer (INTERNAL) at *->*:Commit call 2",
        ]
        document.set({"n": 1})
        with pytest.raises(exceptions.InternalServerError):
            document.set({"n": 2})
        assert document.get().get("n") == 2
        state = control.get("/").json()
        assert state["pending"] == []
        assert len(state["injected"]) == 1
        assert control.get("/calls").json() == [
            "client->firestore:Commit",
            "client->firestore:Commit",
            "client->firestore:BatchGetDocuments",
        ]
        control.post("/faults", json=[{"action": "lose_request"}, {"action": "lose_request"}])
        assert control.delete("/faults").json() == {"pending": []}
        document.set({"n": 3}, retry=None)


def test_the_server_is_killed_and_comes_back(run: Run, connect: Any) -> None:
    _, ready = run("--control-port", "0")
    document = connect(ready["address"]).document("c/a")
    document.set({"n": 1})
    with httpx.Client(base_url=ready["control"]) as control:
        control.post("/faults", json={"action": "kill_callee", "method": "Commit"})
    with pytest.raises(exceptions.ServiceUnavailable):
        document.set({"n": 2}, retry=None)
    assert document.get().get("n") in (1, 2)


def test_a_caller_of_its_own_is_killed_at_its_commit(run: Run, connect: Any) -> None:
    _, ready = run("--control-port", "0")
    script = (
        "from google.cloud import firestore; from google.auth.credentials import AnonymousCredentials as A; input();"
        "firestore.Client(project='test-project', credentials=A()).document('c/a').set({'n': 1}); print('survived')"
    )
    with httpx.Client(base_url=ready["control"], timeout=60) as control:
        address = control.post("/callers", json={"name": "worker"}).json()["address"]
        worker = subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"FIRESTORE_EMULATOR_HOST": address},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert control.post("/callers", json={"name": "worker", "pid": worker.pid}).json()["address"] == address
        control.post("/faults", json={"action": "kill_after", "caller": "worker", "method": "Commit"})
    output, _ = worker.communicate(b"\n")
    assert (worker.returncode, output) == (-signal.SIGKILL, b"")
    assert connect(ready["address"]).document("c/a").get().get("n") == 1


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/faults", {"action": "explode"}, "no action"),
        ("/faults", {"action": "drop", "often": 1}, "a fault has no often"),
        ("/faults", {"action": "drop", "nth": "1"}, "nth has to be of type int"),
        ("/faults", {"action": "drop", "code": "BROKEN"}, "not a gRPC status name"),
        ("/faults", "drop", "is not a fault"),
        ("/callers", {"name": ""}, "a caller is"),
        ("/callers", {"name": "w", "pid": 1}, "is not that of a process"),
        ("/callers", {"name": "firestore"}, "the name of the server"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(control_url: str, path: str, body: Any, says: str) -> None:
    answer = httpx.post(control_url + path, json=body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


@pytest.fixture(scope="module")
def control_url() -> Iterator[str]:
    command = [sys.executable, "-m", "tools", "firestore", "--port", "0", "--control-port", "0"]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout
    yield json.loads(process.stdout.readline())["control"]
    process.terminate()
    process.communicate()


def test_the_client_retries_over_a_lost_answer(run: Run, connect: Any) -> None:
    """As production does: the client's own retry meets its own document."""
    _, ready = run("--control-port", "0")
    firestore = connect(ready["address"])
    with httpx.Client(base_url=ready["control"]) as control:
        control.post("/faults", json={"action": "lose_answer", "method": "Commit", "times": 2})
        with pytest.raises(exceptions.AlreadyExists):
            firestore.document("c/a").create({"by": "me"})
        assert firestore.document("c/a").get().get("by") == "me"
        control.delete("/faults")
        control.post("/faults", json={"action": "lose_answer", "method": "Commit", "code": "ABORTED"})
        calls = []

        @library.transactional
        def body(transaction: Any) -> None:
            calls.append(1)
            transaction.set(firestore.document("c/b"), {"n": 1})

        body(firestore.transaction())
    assert len(calls) == 2
