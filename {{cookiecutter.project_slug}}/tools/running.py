"""One run by hand: start it, show what happens, wait for its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from exactly_once.errors import ExactlyOnceError, Refusal
from exactly_once.identity import RunContext
from exactly_once.launching import ByHand
from exactly_once.log import Log
from tools.errors import UserError
from tools.project import ROOT, STATE, Running, owned, running
from tools.reach import Addresses, reach
from tools.settings import Settings
from tools.showing import Lines, console

POLL = 0.05
"""Real seconds between two looks at the execution and the events."""


class Runner:
    """Runs one run on the chain that is up, or on one of its own."""

    def __init__(self, settings: Settings, firestore: str, note: str = "") -> None:
        """`note` is why, which the run's record keeps."""
        self._settings = settings
        self._note = note
        self._firestore = firestore
        self._out = console()

    def run(self, run: RunContext) -> bool:
        """Whether it succeeded. Raises UserError."""
        chain = running(STATE)
        if chain:
            return self._run(run, chain)
        with self._own_chain() as chain:
            return self._run(run, chain)

    @contextmanager
    def _own_chain(self) -> Iterator[Running]:
        from tools.emulators.chain import Chain
        from tools.local import where

        self._out.print("no chain is running here: starting one for this run", style="dim")
        with owned(STATE), Chain(ROOT, STATE, firestore=self._firestore, wired=False) as chain:
            yield where(chain)

    def _run(self, run: RunContext, chain: Running) -> bool:
        events = _Tail(Path(chain.events))
        show = Lines(self._out)
        log = Log(lambda line: show({**json.loads(line), "service": "run", "time": time.time()}))
        addresses = Addresses(chain.firestore, chain.workflows)
        with reach(self._settings, addresses, log) as hands:
            try:
                launcher = replace(hands.launcher, by=ByHand(hands.operator.who, self._note))
                started = launcher.deliver(run, log.about(pipeline=run.pipeline))
            except Refusal as refused:
                raise UserError(f"run {run.run_id[:8]} was not started: {refused.message}") from None
            except ExactlyOnceError as error:
                raise UserError(f"run {run.run_id[:8]} was not started: {error}") from None
        if not started.by_us:
            self._out.print(f"run {run.run_id[:8]} exists already: this is how it stands")
        return self._wait(chain, started.execution, events, show)

    def _wait(self, chain: Running, name: str, events: _Tail, show: Lines) -> bool:
        """Show the chain's events until the execution has ended."""
        ended = False
        while not ended:
            execution = _execution(chain, name)
            ended = execution["state"] not in ("ACTIVE", "QUEUED")
            time.sleep(POLL)  # also the last time: lines of its last step may still be on their way
            for event in events.new():
                show(event)
        succeeded: bool = execution["state"] == "SUCCEEDED"
        self._out.print(f"\n{execution['state']}", style="bold green" if succeeded else "bold red")
        said = execution.get("result") if succeeded else execution.get("error", {}).get("payload")
        self._out.print(str(said), markup=False, soft_wrap=True)
        return succeeded


class _Tail:
    """The events that are written to a file from now on."""

    def __init__(self, file: Path) -> None:
        self._file = file.open(encoding="utf-8")
        self._file.seek(0, 2)
        self._rest = ""

    def new(self) -> list[dict[str, Any]]:
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        return [json.loads(line) for line in lines]


def _execution(chain: Running, name: str) -> dict[str, Any]:
    """As the Executions API has it. Raises UserError."""
    try:
        answer = httpx.get(f"{chain.workflows_url}/v1/{name}", trust_env=False, timeout=30)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise UserError(f"the execution cannot be looked at any more: {error}") from None
    found: dict[str, Any] = answer.json()
    return found
