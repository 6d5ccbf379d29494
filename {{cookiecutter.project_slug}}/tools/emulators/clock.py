"""The emulators' clock: real time plus an offset, so that waiting can be skipped.

Every emulator takes a `Clock`. In `local` it is the system's. `demo`, `prove` and tests use a `JumpClock`: while a call
is in flight time passes as it does; when every part of the chain only waits, time jumps to the next moment at which
somebody wakes. A lease of five minutes or a retry after an hour is then tried in milliseconds, and no order of
events appears that could not happen in real time.

The offset lies in a file of eight bytes (signed microseconds, little-endian, mapped by every emulator process), so
the Firestore child reads the same time as the rest without a message.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Seconds since the epoch, and ways to wait on that scale."""

    def now(self) -> float: ...

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> bool:
        """Wait; True if `wake` was set before the time was over."""
        ...

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Work is in flight: time does not jump meanwhile."""
        ...


class SystemClock:
    """Real time."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> bool:
        if wake is None:
            time.sleep(max(0.0, seconds))
            return False
        return wake.wait(max(0.0, seconds))

    @contextmanager
    def busy(self) -> Iterator[None]:
        yield


class OffsetFile:
    """The offset shared between processes; 0 microseconds when new."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("<q", 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)

    def read(self) -> int:
        """Microseconds."""
        return int(struct.unpack_from("<q", self._map)[0])

    def write(self, microseconds: int) -> None:
        struct.pack_into("<q", self._map, 0, microseconds)


class OffsetClock(SystemClock):
    """Real time plus the shared offset: what a child process reads."""

    def __init__(self, offset: OffsetFile) -> None:
        self._offset = offset

    def now(self) -> float:
        return time.time() + self._offset.read() / 1e6
