"""The stand-ins by themselves, for tests of one step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.emulators.clock import SystemClock
from tools.emulators.events import EventLog
from tools.emulators.faults import Plan
from tools.emulators.hosting import Host, bind
from tools.emulators.http_faults import HttpFaults
from tools.emulators.receivers import Ledger, Receivers, Row
from tools.emulators.sinks import Sinks


@dataclass
class Standing:
    """`environment` is what the step's function has to be told."""

    ledger: Ledger
    plan: Plan
    url: str
    environment: dict[str, str] = field(default_factory=dict)

    def effects(self) -> list[Row]:
        """The calls that took effect: none is the repeat of another."""
        return [row for row in self.ledger.rows() if row["outcome"] == "first"]


class NoProcesses:
    """A step under test is no process of its own."""

    def kill(self, name: str) -> None:
        raise KeyError(name)

    freeze = resume = kill


@contextmanager
def standing(folder: Path, step: str, words: str, receivers: frozenset[str] = frozenset()) -> Iterator[Standing]:
    """Stand-ins for `step` with the SINKS line `words`, their state in `folder`, until the end of the block.

    `receivers`: names of HTTP receivers beside them, at `url`/<step>/<name>.
    """
    clock, plan = SystemClock(), Plan()
    host, log, ledger = Host(clock), EventLog(clock, folder / "events.jsonl"), Ledger(folder / "ledger.jsonl")
    sinks = Sinks(folder, ledger, clock, "test-project", "europe-west1")
    faults = HttpFaults(host, plan, clock, NoProcesses(), caller_is_a_process=True)
    try:
        port = host.add(Receivers(ledger, faults, clock, log, {step: receivers}, sinks.face).part, bind(0))
        host.start()
        url = f"http://127.0.0.1:{port}"
        yield Standing(ledger, plan, url, sinks.environment(step, words, url, lambda _, address: address))
    finally:
        sinks.stop()
        host.stop()
        ledger.close()
        log.close()
