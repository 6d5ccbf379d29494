"""The processes of the chain, as Cloud Run would keep them: started when a request needs one, each group on its own.

An *instance* is one process. It can be killed, or frozen (SIGSTOP): a frozen instance gets no requests, and the next
one starts another instance, as Cloud Run scales out, so that a process that wakes later is a real zombie. With request
billing an instance is *throttled* instead while no caller waits for it: it is stopped, and continued for the next one.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.emulators.clock import Clock, Hold
from tools.emulators.events import Collector, EventLog
from tools.errors import UserError

START_SECONDS = 60.0
"""Real seconds that a process may take until it answers; Cloud Run gives a container four minutes."""

STOP_SECONDS = 2.0
"""Real seconds between SIGTERM and SIGKILL; Cloud Run gives 10."""

PORTS = range(15_000, 30_000)
"""Below the ports that systems give to outgoing connections, so that nobody gets ours by chance."""


class StartError(UserError):
    """A process did not come up; the text names it and holds the end of what it wrote to stderr."""


class Guard:
    """Sees to it that no child outlives this process (guard.py)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(Path(__file__).with_name("guard.py"))],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._lock = threading.Lock()

    def note(self, sign: str, group: int) -> None:
        assert self._process.stdin
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{sign}{group}\n".encode())
            self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin
        with self._lock:
            self._process.stdin.close()
        self._process.wait()


class Child:
    """One process group whose output goes to the events and which the guard knows."""

    def __init__(
        self, name: str, command: list[str], env: Mapping[str, str], cwd: Path, collector: Collector, guard: Guard
    ) -> None:
        self.name = name
        self._guard = guard
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
        guard.note("+", self.pid)
        assert self.process.stdout and self.process.stderr
        collector.watch(self.process.stdout, name, "stdout")  # type: ignore[arg-type]
        collector.watch(self.process.stderr, name, "stderr")  # type: ignore[arg-type]

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        if self.process.poll() is None:
            return True
        self._guard.note("-", self.pid)
        return False

    def signal(self, number: int) -> None:
        """To every process of the group; nothing if there is none left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()
        self._guard.note("-", self.pid)

    def terminate(self) -> None:
        """SIGTERM, then SIGKILL for whatever is left of the group."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self.kill()


@dataclass(frozen=True)
class Spec:
    """What a service runs: `command` with the port appended, and its environment."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    timeout: float
    """Seconds, on the emulators' clock, after which the front answers 504."""


def function(name: str, source: Path, env: Mapping[str, str], project: Path, timeout: float) -> Spec:
    """A function as Cloud Run starts it: functions-framework on `source`, entry point `main`."""
    command = (sys.executable, "-m", "functions_framework", "--source", str(source), "--target", "main")
    return Spec(name, (*command, "--host", "127.0.0.1", "--port"), env, project, timeout)


class Instance:
    """One process of a service, and the requests that it works on."""

    def __init__(self, child: Child, port: int, clock: Clock) -> None:
        self.child = child
        self.port = port
        self.frozen = False
        self.throttled = False
        self._clock = clock
        self._lock = threading.Lock()
        self._open: set[Hold] = set()
        self._listened = 0

    @property
    def open(self) -> int:
        """Requests whose body has not ended, whether the caller still listens or not."""
        return len(self._open)

    def begin(self) -> Hold:
        """A request goes in: work in flight until `end`, except while the process is stopped."""
        hold = self._clock.hold()
        with self._lock:
            self._open.add(hold)
            self._listened += 1
            if not self.frozen:
                hold.on()
            if self.throttled:
                self._stop(False)
                self.throttled = False
        return hold

    def gave_up(self, throttle: bool) -> None:
        """The caller of one open request has its answer, be it a 504. With `throttle`, no open caller: no CPU."""
        with self._lock:
            self._listened -= 1
            if throttle and not self._listened and not self.frozen and not self.throttled:
                self._stop(True)
                self.throttled = True

    def end(self, hold: Hold) -> None:
        with self._lock:
            self._open.discard(hold)
            hold.off()

    def freeze(self, frozen: bool) -> None:
        with self._lock:
            if self.frozen != frozen:
                self.frozen = frozen
                self._stop(frozen)

    def _stop(self, stopped: bool) -> None:
        if not stopped:
            for hold in self._open:
                hold.on()
        self.child.signal(signal.SIGSTOP if stopped else signal.SIGCONT)
        if stopped:
            for hold in self._open:
                hold.off()


class Service:
    """One service: its running instance, made when needed, and those that are frozen."""

    def __init__(self, spec: Spec, clock: Clock, log: EventLog, collector: Collector, guard: Guard) -> None:
        self.spec = spec
        self.instances: list[Instance] = []
        self._clock = clock
        self._log = log
        self._collector = collector
        self._guard = guard
        self._lock = threading.Lock()
        self._retired: list[Instance] = []

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def open(self) -> int:
        """Requests whose body has not ended, over all instances."""
        return sum(instance.open for instance in self.instances)

    def ensure(self) -> Instance:
        """The instance for the next request; blocks while one starts. Raises StartError."""
        with self._lock:
            self._sort_out()
            for instance in reversed(self.instances):
                if not instance.frozen:
                    return instance
            instance = self._start()
            self.instances.append(instance)
            return instance

    def kill(self) -> None:
        """SIGKILL to the running instance, or to the frozen ones if there is no other; the next request starts anew."""
        with self._lock:
            running = [i for i in self.instances if not i.frozen] or self.instances
            for instance in running:
                instance.child.kill()
                self._log.add(self.name, "process.killed", pid=instance.child.pid)
            self._sort_out()

    def freeze(self) -> None:
        """SIGSTOP to the running instance: it does nothing until `resume`, and requests go to another one."""
        self._freeze(True)

    def resume(self) -> None:
        """SIGCONT: what was frozen goes on where it was."""
        self._freeze(False)

    def restart(self) -> Instance:
        """Replace every instance by a new one, as a deployment does."""
        self.stop()
        return self.ensure()

    def stop(self) -> None:
        with self._lock:
            for instance in self.instances:
                instance.child.terminate()
            self.instances.clear()

    def _freeze(self, frozen: bool) -> None:
        with self._lock:
            self._sort_out()
            for instance in self.instances:
                if instance.frozen != frozen:
                    instance.freeze(frozen)
                    self._log.add(self.name, "process.frozen" if frozen else "process.resumed", pid=instance.child.pid)

    def _sort_out(self) -> None:
        """Forget the dead, and end those that were replaced and have nothing more to do."""
        for instance in list(self.instances):
            replaced = not instance.frozen and not instance.open and instance is not self.instances[-1]
            if not instance.child.alive():
                self.instances.remove(instance)
            elif replaced:
                instance.child.terminate()
                self.instances.remove(instance)

    def _start(self) -> Instance:
        for attempt in range(3):
            port = free_port()
            began = time.monotonic()
            child = Child(
                self.name, [*self.spec.command, str(port)], self.spec.env, self.spec.cwd, self._collector, self._guard
            )
            if answers(port, child.alive):
                self._log.add(self.name, "process.started", pid=child.pid, seconds=round(time.monotonic() - began, 2))
                return Instance(child, port, self._clock)
            child.kill()
            self._collector.drain()
            said = self._said()
            if "already in use" not in said.lower() or attempt == 2:
                raise StartError(f"{self.name} did not start:\n{said.rstrip() or 'it said nothing'}")
        raise AssertionError("unreachable")

    def _said(self, lines: int = 60) -> str:
        output = [e["message"] for e in self._log.all() if e["service"] == self.name and e.get("stream") == "stderr"]
        own = [n for n, line in enumerate(output) if line.startswith(f'  File "{self.spec.cwd}{os.sep}')]
        return "\n".join(output[own[0] if own else 0 :][-lines:])  # from the project's own first line of a traceback


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def answers(port: int, alive: Callable[[], bool], seconds: float = START_SECONDS) -> bool:
    """Wait until a function answers HTTP; False if it ended or the time is over.

    functions-framework answers /robots.txt with 404 without calling the function.
    """
    until = time.monotonic() + seconds
    while alive() and time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
        try:
            connection.request("GET", "/robots.txt")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
        else:
            return True
        finally:
            connection.close()
    return False
