"""What the parts of the chain say, in one order: the parsed log lines of every process, and the emulators' own.

An event is a dict: ``service`` (who said it), ``time`` (seconds since the epoch on the emulators' clock, as the line
arrived), ``event`` (``log`` where a line names none) and the fields of the JSON line. A line that is not a JSON object
becomes ``{"event": "output", "message": line, "stream": "stdout" | "stderr"}``, so that a bare traceback is an event as
well.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import struct
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tools.emulators.clock import Clock

Event = dict[str, Any]
Listener = Callable[[Event], None]


class EventLog:
    """Thread-safe; `add` calls the listeners in order before it returns. With `file` each event is a line there too."""

    def __init__(self, clock: Clock, file: Path | None = None) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._events: list[Event] = []
        self._listeners: list[Listener] = []
        self._file = file.open("a", encoding="utf-8") if file else None

    def add(self, service: str, event: str, **fields: Any) -> None:
        """An event of the emulators' own."""
        self.record({"service": service, "event": event, **fields})

    def record(self, event: Event) -> None:
        with self._lock:
            event = {"event": "log", **event, "time": self._clock.now()}
            self._events.append(event)
            if self._file:
                self._file.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")
                self._file.flush()
            for listener in self._listeners:
                listener(event)

    def listen(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def all(self) -> list[Event]:
        """A copy of what there is so far."""
        with self._lock:
            return list(self._events)

    def clear(self) -> None:
        with self._lock:
            self._events.clear()

    def close(self) -> None:
        with self._lock:
            self._listeners.clear()
            if self._file:
                self._file.close()
                self._file = None


class Collector:
    """Reads the output of all child processes in one thread, and turns each line into an event."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._rests: dict[int, bytes] = {}
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._thread.start()

    def watch(self, pipe: BinaryIO, service: str, stream: str) -> None:
        """Read `pipe` from now on, until every process has closed its other end."""
        os.set_blocking(pipe.fileno(), False)
        with self._lock:
            self._rests[pipe.fileno()] = b""
            self._selector.register(pipe, selectors.EVENT_READ, (service, stream))
        os.write(self._wake_write, b".")

    def drain(self) -> None:
        """Return once everything that was written before this call has become an event."""
        while True:
            with self._lock:
                waiting = any(_unread(fd) for fd in self._rests)
            if not waiting:
                return
            time.sleep(0.001)

    def stop(self) -> None:
        self._stopped = True
        os.write(self._wake_write, b".")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if key.data:
                key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select():
                if key.fd == self._wake_read:
                    os.read(self._wake_read, 4096)
                    continue
                with self._lock:
                    self._read(key)

    def _read(self, key: selectors.SelectorKey) -> None:
        service, stream = key.data
        data = os.read(key.fd, 1 << 16)
        *lines, rest = (self._rests[key.fd] + data).split(b"\n")
        if not data and rest:
            lines, rest = [*lines, rest], b""
        for line in lines:
            self._line(service, stream, line.decode(errors="replace"))
        self._rests[key.fd] = rest
        if not data:
            self._selector.unregister(key.fileobj)
            del self._rests[key.fd]
            key.fileobj.close()  # type: ignore[union-attr]

    def _line(self, service: str, stream: str, line: str) -> None:
        if not line.strip():
            return
        try:
            fields = json.loads(line)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            fields = {"event": "output", "message": line, "stream": stream}
        self._log.record({**fields, "service": service})


def _unread(fd: int) -> bool:
    return bool(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0])
