"""A gcloud for the PATH of deploy.sh's tests: it records every call and keeps a model of the resources.

The command itself is a few lines of bash that ask this process, since a test starts it a hundred times. What the model
(tests/deploy/resources.py) does not know, be it a command, a flag or a missing argument, it refuses, as gcloud does.
"""

from __future__ import annotations

import copy
import json
import re
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

from tests.deploy.resources import COMMANDS, Call, GcloudError, Model, fresh

CLIENT = """\
#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{port}
printf '%s\\0' "$PWD" "$#" "$@" >&3
IFS= read -r -d '' code <&3 || exit 99
IFS= read -r -d '' output <&3
IFS= read -r -d '' error <&3
printf %s "$output"
printf %s "$error" >&2
exit "$code"
"""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64  # as many come at once; those beyond it would wait a second for nothing


class Gcloud:
    """The recording gcloud: `bin` goes on the PATH; `calls`, `changes` and `state` tell what came of it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.state: dict[str, Any] = fresh()
        self.calls: list[dict[str, Any]] = []
        """Each call in order of its end: argv, began, ended (seconds), code, changes (whether it changes something)."""
        self.begun = 0
        self._lock = threading.Lock()
        self._sleeps = folder / "sleeps"
        self.plan()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self._script("gcloud", CLIENT.format(port=self._server.server_address[1]))
        self._script("sleep", f'#!/bin/sh\necho "$1" >>{self._sleeps}\n')  # back-off costs a test nothing

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _script(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def plan(self, *failures: dict[str, Any], delay: float = 0.0) -> None:
        """From now on every command takes `delay` seconds, and some fail.

        A failure: `match` (regular expression on the words) or `call` (its number, from 1), `stderr`, `times`
        (default 1), `after` (True: the change is made, only its answer is lost).
        """
        self._delay = delay
        self._failures = copy.deepcopy(failures)

    def forget(self) -> None:
        """Count calls anew; the resources stay."""
        self.calls, self.begun = [], 0
        self._sleeps.unlink(missing_ok=True)

    @property
    def changes(self) -> list[list[str]]:
        """The words of every call that changes something, successful or not."""
        return [call["argv"] for call in self.calls if call["changes"]]

    @property
    def sleeps(self) -> list[int]:
        """Seconds of every back-off."""
        return [int(line) for line in self._sleeps.read_text().split()] if self._sleeps.exists() else []

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        gcloud = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                words = _words(self.rfile)
                folder, count = next(words), int(next(words))
                code, output, error = gcloud.run([next(words) for _ in range(count)], Path(folder))
                self.wfile.write(f"{code}\0{output}\0{error}\0".encode())

        return Handler

    def run(self, argv: list[str], folder: Path) -> tuple[int, str, str]:
        """Carry out one call from `folder`: its exit code, what it prints and what it says on stderr."""
        began = time.monotonic()
        with self._lock:
            self.begun += 1
            failure = self._planned(self.begun, " ".join(argv))
            etag = self.state["etag"]
        time.sleep(self._delay)
        code, output, error, call = 0, "", "", None
        with self._lock:
            try:
                call = parse(argv, folder)
                if failure and not failure.get("after"):
                    raise GcloudError(failure["stderr"])
                output = shown(Model(self.state, etag).run(call), call)
                if failure:
                    raise GcloudError(failure["stderr"])
            except GcloudError as problem:
                code, error = problem.code, f"{problem}\n"
            changes = call is not None and COMMANDS[call.name].changes
            record = {"argv": argv, "began": began, "ended": time.monotonic(), "code": code, "changes": changes}
            self.calls.append(record)
        return code, output, error

    def _planned(self, number: int, words: str) -> dict[str, Any] | None:
        """The failure that the plan holds for this call; each happens `times` times."""
        for failure in self._failures:
            hit = number == failure["call"] if "call" in failure else re.search(failure["match"], words)
            if hit and failure.setdefault("times", 1) > 0:
                failure["times"] -= 1
                return failure
        return None


def _words(stream: Any) -> Any:
    """The NUL-ended words of a stream, each as it comes."""
    while True:
        word = bytearray()
        while (byte := stream.read(1)) != b"\0":
            word += byte
        yield word.decode()


def parse(argv: list[str], folder: Path) -> Call:
    """The command, its positionals and flags. Raises GcloudError for what gcloud 528 would not take."""
    words = [word for word in argv if not word.startswith("--")]
    for length in range(min(5, len(words)), 0, -1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            break
    else:
        raise GcloudError(f"ERROR: (gcloud) Invalid choice: '{' '.join(words)}'.", 2)
    command = COMMANDS[name]
    flags: dict[str, str] = {}
    for word in argv:
        if word.startswith("--"):
            key, sign, value = word.partition("=")
            if key not in command.flags and key not in ("--project", "--format", "--flatten"):
                raise GcloudError(f"ERROR: ({name}) unrecognized arguments: {key}", 2)
            flags[key] = value if sign else "True"
    positionals = words[length:]
    if len(positionals) != command.positionals and command.positionals >= 0:
        raise GcloudError(f"ERROR: ({name}) wrong number of arguments: {positionals}", 2)
    for flag in command.required:
        if flag not in flags:
            raise GcloudError(f"ERROR: ({name}) argument {flag}: Must be specified.", 2)
    return Call(name, positionals, flags, folder)


def shown(resources: list[dict[str, Any]], call: Call) -> str:
    """What --flatten and --format=value(...) make of the resources."""
    form = call.flags.get("--format", "")
    match = re.fullmatch(r'value(?:\[separator="(.)"\])?\((.*)\)', form)
    if not match:
        return "" if form == "none" else json.dumps(resources)
    if call.flags.get("--flatten") == "bindings[].members":
        resources = [
            {"bindings": {**binding, "members": member}}
            for resource in resources
            for binding in resource.get("bindings", [])
            for member in binding["members"]
        ]
    paths = match[2].split(",")
    return "".join((match[1] or "\t").join(cell(resource, path) for path in paths) + "\n" for resource in resources)


def cell(resource: Any, path: str) -> str:
    """The value at `path`, such as `spec.traffic[0].percent`, as gcloud prints it; "" if there is none."""
    value = resource
    for key in path.replace("[", ".[").split("."):
        if key.startswith("["):
            index = int(key[1:-1])
            value = value[index] if isinstance(value, list) and len(value) > index else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, list):
        return ";".join(str(item) for item in value)
    return "" if value is None else str(value)
