"""Faults for whoever runs Firestore alone: wires before the server, set from outside over HTTP and JSON.

    GET    /         where the callers' wires are, the faults to come and those that happened
    GET    /calls    every call that was seen, in order: "client->firestore:Commit"
    POST   /callers  {"name": "worker", "pid": 4711?} -> {"address": "127.0.0.1:PORT"}: a wire of that caller's own
    POST   /faults   {"action": "lose_answer", "method": "Commit", "nth": 2, ...}, or a list of such: see faults.py
    DELETE /faults   forget faults and counts

The first caller is `client`, at the port that was asked for. A caller that gave its pid can be killed and frozen;
`firestore` itself can be killed too (`kill_callee`), and is started again on the same file and port.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tools.emulators.clock import Clock
from tools.emulators.faults import Action, Fault, Plan
from tools.emulators.hosting import Host, bind
from tools.emulators.services import Guard
from tools.emulators.wire import GrpcWire

FIRESTORE = "firestore"
CLIENT = "client"
PROJECT = Path(__file__).parents[3]


class BadRequest(Exception):  # noqa: N818 - a verdict on what was sent
    """The text goes to whoever sent it, with status 400."""


class Child:
    """The server as a process that can be killed and comes back. Raises ChildError if it does not start."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._guard = Guard()
        self.address = ""
        self._start()

    def _start(self) -> None:
        port = self.address.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "tools.emulators.firestore", *self._arguments, "--port", port]
        self._process = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout
        self._guard.note("+", self._process.pid)
        ready = self._process.stdout.readline()
        if not ready:
            self._end()
            self._guard.close()
            raise ChildError("the Firestore server did not start")
        self.address = json.loads(ready)["address"]

    def restart(self) -> None:
        """SIGKILL, and a new one on the same file and port."""
        self._process.kill()
        self._end()
        self._start()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        self.signal(signal.SIGCONT)
        self._process.terminate()
        self._end()
        self._guard.close()

    def _end(self) -> None:
        self._process.wait()
        self._guard.note("-", self._process.pid)


class ChildError(Exception):
    """The server has ended; it has said why on standard error."""


class Control:
    """The server, its callers' wires and the HTTP endpoint; everything lasts until `stop`."""

    def __init__(self, server_arguments: list[str], clock: Clock) -> None:
        self._clock = clock
        self._plan = Plan()
        self._pids: dict[str, int] = {}
        self._wires: dict[str, tuple[GrpcWire, str]] = {}
        self._host = Host(clock)
        self._arguments = server_arguments

    def start(self, port: int, control_port: int) -> tuple[str, str]:
        """Addresses of the first caller's wire and of the endpoint. Raises OSError for a port in use, ChildError."""
        listening = bind(control_port)
        with contextlib.ExitStack() as undo:
            undo.callback(listening.close)
            self._child = Child(self._arguments)
            undo.callback(self._child.stop)
            address = self._caller(CLIENT, None, port)
            undo.pop_all()
        control = self._host.add(self._answer, listening)
        self._host.start()
        return address, f"http://127.0.0.1:{control}"

    def stop(self) -> None:
        self._host.stop()
        for wire, _ in self._wires.values():
            wire.stop()
        self._child.stop()

    # -- Processes, for the wires

    def kill(self, name: str) -> None:
        if name == FIRESTORE:
            self._child.restart()
        else:
            self._signal(name, signal.SIGKILL)

    def freeze(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: int) -> None:
        if name == FIRESTORE:
            self._child.signal(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pids[name], number)

    def _caller(self, name: str, pid: int | None, port: int = 0) -> str:
        """The address of a caller's wire, made when the caller is new; a pid replaces the one before."""
        if pid is not None:
            self._pids[name] = pid
        if name not in self._wires:
            wire = GrpcWire(self._child.address, name, FIRESTORE, self._plan, self._clock, self)
            self._wires[name] = (wire, wire.start(port))
        return self._wires[name][1]

    # -- the endpoint

    async def _answer(self, request: Request) -> Response:
        try:
            match request.method, request.url.path:
                case "GET", "/":
                    return JSONResponse(self._state())
                case "GET", "/calls":
                    return JSONResponse([str(call) for call in self._plan.calls])
                case "POST", "/callers":
                    name, pid = _caller_of(await _json(request))
                    return JSONResponse({"address": await self._host.blocking(self._caller, name, pid)})
                case "POST", "/faults":
                    self._plan.add(*_faults_of(await _json(request)))
                    return JSONResponse({"pending": [str(fault) for fault in self._plan.pending()]})
                case "DELETE", "/faults":
                    self._plan.clear()
                    return JSONResponse({"pending": []})
                case _:
                    return JSONResponse({"error": f"no {request.method} {request.url.path} here"}, status_code=404)
        except BadRequest as error:
            return JSONResponse({"error": str(error)}, status_code=400)

    def _state(self) -> dict[str, Any]:
        return {
            "server": self._child.address,
            "callers": {
                name: {"address": address, "pid": self._pids.get(name)} for name, (_, address) in self._wires.items()
            },
            "pending": [str(fault) for fault in self._plan.pending()],
            "injected": [f"{fault} ({call})" for fault, call in self._plan.injected],
        }


async def _json(request: Request) -> Any:
    try:
        return json.loads(await request.body())
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def _caller_of(asked: Any) -> tuple[str, int | None]:
    if not isinstance(asked, dict) or not isinstance(asked.get("name"), str) or not asked["name"]:
        raise BadRequest('a caller is {"name": "...", "pid": number?}')
    pid = asked.get("pid")
    if pid is not None and (not isinstance(pid, int) or isinstance(pid, bool) or pid <= 1):
        raise BadRequest(f"pid {pid!r} is not that of a process")
    if asked["name"] == FIRESTORE:
        raise BadRequest(f"{FIRESTORE} is the name of the server")
    return asked["name"], pid


def _faults_of(asked: Any) -> list[Fault]:
    faults = []
    for each in asked if isinstance(asked, list) else [asked]:
        if not isinstance(each, dict):
            raise BadRequest(f"{each!r} is not a fault: a fault is an object")
        faults.append(_fault_of(each))
    return faults


def _fault_of(asked: dict[str, Any]) -> Fault:
    known = {field.name for field in dataclasses.fields(Fault)}
    if unknown := sorted(set(asked) - known):
        raise BadRequest(f"a fault has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    actions = ", ".join(action.value for action in Action)
    if asked.get("action") not in list(Action):
        raise BadRequest(f"{asked.get('action')!r} is no action; the actions are {actions}")
    for name, kind in (("caller", str), ("callee", str), ("method", str), ("nth", int), ("times", int), ("code", str)):
        if name in asked and not (isinstance(asked[name], kind) or (name == "code" and asked[name] is None)):
            raise BadRequest(f"{name} has to be of type {kind.__name__}")
    if not isinstance(asked.get("seconds", 0), int | float):
        raise BadRequest("seconds has to be a number")
    if asked.get("code") is not None and asked["code"] not in _status_names():
        raise BadRequest(f"{asked['code']!r} is not a gRPC status name")
    return Fault(**{**asked, "action": Action(asked["action"])})


def _status_names() -> set[str]:
    import grpc

    return {status.name for status in grpc.StatusCode}
