"""`./pipeline demo`: one slot of the project's own schedule under duplicates, lost answers and a kill, then a receipt.

The demo knows the chain, not the pipeline: what is loaded, which slot is delivered and which effects there should be
is said by the project's tests/expected.py. Time jumps over every wait, so that leases of minutes cost nothing.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import click
from rich.console import Console
from rich.text import Text

from tools.emulators.chain import Chain
from tools.emulators.clock import Clock, JumpClock, OffsetFile, SystemClock
from tools.emulators.faults import Action, Fault, Plan
from tools.emulators.storage import OFFSET_FILE
from tools.errors import UserError
from tools.project import ROOT, STATE, owned
from tools.reach import Addresses, events_to, reach
from tools.receipt import (
    Receipt,
    deliveries_table,
    effects_table,
    faults_table,
    operator_lines,
    receivers_table,
    show,
    steps_table,
    verdict,
)
from tools.settings import Settings
from tools.settings import load as load_settings
from tools.showing import Lines, console

SHORT_LEASE = 5
"""Seconds: of every lease where Firestore's time is real, since waiting cannot be skipped then."""

PATIENCE = 150.0
"""Real seconds after which the demo gives the run up."""

OPERATOR_ROUNDS = 3
"""How often the demo, as the operator, resolves what is held and resumes the run."""


class Progress:
    """One line that says what goes on: it is rewritten on a terminal, and one line a stage elsewhere."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._status = out.status("") if out.is_terminal else None
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Take the line away."""
        if self._status:
            self._status.stop()

    def __call__(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        if self._status:
            self._status.update(Text(line, no_wrap=True, overflow="ellipsis"))
        else:
            self._out.print(line)


@click.command()
@click.option("--firestore", default="embedded", show_default=True, metavar="embedded|official|HOST:PORT")
def demo(firestore: str) -> None:
    """Run one slot of this pipeline under duplicates and faults, and print its receipt.

    Exits with 1 if one effect is missing or doubled, or if a fault that was to happen did not.
    """
    out = console()
    state = STATE / "demo"
    with owned(STATE / "demo-lock"):
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir(parents=True)
        problems = Demo(ROOT, state, firestore, out).run()
    sys.exit(1 if problems else 0)


class Demo:
    """One demonstration; `run` gives what was wrong, in words."""

    def __init__(self, project: Path, state: Path, firestore: str, out: Console) -> None:
        self.project = project
        self.state = state
        self.firestore = firestore
        self.out = out
        self.expected = load_expected(project)
        sample = self.expected.SAMPLE or []
        self.sample: list[str] = [sample] if isinstance(sample, str) else list(sample)
        self.slot = datetime.fromisoformat(self.expected.SLOT)
        self.settings = _settings(project, real_time=firestore != "embedded")
        self.plan = Plan()
        self.resolved: list[dict[str, Any]] = []

    def run(self) -> list[str]:
        began = time.monotonic()
        with ExitStack() as stack:
            say = stack.enter_context(Progress(self.out))
            clock = stack.enter_context(self._clock())
            say(f"starting the chain: the proxy and {len(self.settings.steps)} steps, a process each")
            chain = Chain(
                self.project, self.state, clock=clock, plan=self.plan, firestore=self.firestore, settings=self.settings
            )
            chain.log.listen(_Bugs(Lines(self.out, only_problems=True), self.plan))
            stack.enter_context(chain)
            say(f"ready; loading {' and '.join(self.sample) or 'nothing'}")
            self._load(chain)
            say("delivering the slot twice at once, and losing an answer at every hop")
            executions = self._deliver(chain, say)
            say("counting")
            effects = list(self.expected.expected(chain.documents(), chain.receivers.ledger()))
            say.end()
            return self._report(chain, executions, effects, time.monotonic() - began)

    @contextmanager
    def _clock(self) -> Iterator[Clock]:
        """It jumps, and begins at the slot; real where Firestore's own is."""
        if self.firestore != "embedded":
            yield SystemClock()
            return
        clock = JumpClock(OffsetFile(self.state / OFFSET_FILE))
        clock.set(self.slot.timestamp())
        try:
            yield clock
        finally:
            clock.stop()

    def _load(self, chain: Chain) -> None:
        from tools.database import add_missing
        from tools.loading import read

        with chain.database() as client:
            for name in self.sample:
                add_missing(client, read(self.project, self.project / name))

    def _deliver(self, chain: Chain, say: Progress) -> list[dict[str, Any]]:
        """The slot under its faults: deliveries before, beside and after the run."""
        self.plan.add(*faults(self.settings))
        with ThreadPoolExecutor(3) as pool, _watch(chain, say):
            delivery = pool.submit(chain.deliver, self.slot)
            _until(lambda: any(event["event"] == "scheduler.attempt" for event in chain.log.all()))
            for duplicate in [pool.submit(chain.duplicate, self.slot) for _ in range(2)]:
                duplicate.result()
            delivery.result()
            self._finish(chain)
            chain.duplicate(self.slot)
        return chain.executions()

    def _finish(self, chain: Chain) -> None:
        """Wait for the run's end; what is held by then is resolved, and the run resumed, as an operator would."""
        for _ in range(OPERATOR_ROUNDS):
            ended = chain.settle(PATIENCE)
            held = [event for event in chain.events if event["event"] == "step.held"][len(self.resolved) :]
            if not ended or not held:
                return
            addresses = Addresses(chain.firestore_address, chain.workflows.grpc_address)
            with reach(self.settings, addresses, events_to(chain.log.record), "demo") as operator:
                for event in held:
                    operator.operator.resolve(
                        event["run_id"],
                        event["step"],
                        event.get("item"),
                        attempt_id=event["attempt_id"],
                        outcome="redo",
                        note="the stand-in honours the idempotency key: the same call again is safe",
                    )
                    self.resolved.append(event)
                operator.operator.resume(held[0]["run_id"], operator.starter, note="resolved what was held")

    def _report(
        self, chain: Chain, executions: Sequence[dict[str, Any]], effects: Sequence[Any], seconds: float
    ) -> list[str]:
        """Print the receipt; what is wrong."""
        receipt = Receipt.of(chain.events, list(self.settings.steps))
        pending = self.plan.pending()
        problems = [f"this fault did not happen: {fault}" for fault in pending]
        problems += [f"{e.name}: expected {e.expected}, seen {e.seen}" for e in effects if e.expected != e.seen]
        if self.settings.steps and not effects:
            problems.append("tests/expected.py names no effect: nothing was compared")
        if receipt.deliveries < 5:
            problems.append(f"only {receipt.deliveries} deliveries reached the proxy")
        states = [execution["state"] for execution in executions]
        if "SUCCEEDED" not in states:
            problems.append(f"the run did not succeed: its executions are {', '.join(states) or 'none'}")
        self.out.print(Text(f"\nReceipt of slot {self.expected.SLOT} of {self.settings.pipeline}", style="bold"))
        show(
            self.out,
            deliveries_table(receipt),
            faults_table(self.plan.injected, pending),
            steps_table(receipt),
            operator_lines(chain.events),
            receivers_table(chain.receivers.ledger()),
            effects_table(effects),
            verdict(
                problems,
                f"{len(effects)} effect{'s' * (len(effects) > 1)} as expected after {receipt.deliveries} deliveries, "
                f"{len(self.plan.injected)} injected faults and {len(executions)} execution"
                f"{'s' * (len(executions) > 1)}; {seconds:.1f} s",
            ),
        )
        return problems


def _until(condition: Callable[[], bool]) -> None:
    """Wait in real time, at most `PATIENCE`."""
    limit = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < limit:
        time.sleep(0.01)


def faults(settings: Settings) -> list[Fault]:
    """An answer lost at each hop, the slot delivered twice at once, and one step's process killed at its work.

    The kill hits a step that writes to a receiver, after the effect and before its record, where it hurts most; without
    one, a step just before its first commit.
    """
    lost = Action.LOSE_ANSWER
    victim = next((step for step in settings.steps.values() if step.receivers), None)
    found = [
        Fault(Action.TWICE, "scheduler", "proxy", "POST"),
        Fault(lost, "scheduler", "proxy", "POST"),
        Fault(lost, "proxy", "firestore", "Commit"),
        Fault(lost, "proxy", "workflows", "CreateExecution"),
    ]
    for step in settings.steps.values():
        found.append(Fault(lost, "workflows", step.name, "POST"))
        first = 1
        if victim is None:
            victim, first = step, 2
            found.append(Fault(Action.KILL_BEFORE, step.name, "firestore", "Commit"))
        found.append(Fault(lost, step.name, "firestore", "Commit", nth=first))
        for receiver in step.receivers:
            found.append(Fault(lost, step.name, receiver, "POST"))
            if step is victim:
                found.append(Fault(Action.KILL_AFTER, step.name, receiver, "POST", nth=2))
    return found


class _Bugs:
    """Passes on what a bug has to say: the errors that an injected fault must cause in a body are left out."""

    EXPECTED = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ServiceUnavailable", "Unavailable", "Aborted")

    def __init__(self, show: Lines, plan: Plan) -> None:
        self._show = show
        self._plan = plan

    def __call__(self, event: dict[str, Any]) -> None:
        injured = any(call.caller == event["service"] for _, call in self._plan.injected)
        if not (injured and str(event.get("reason", "")) in self.EXPECTED):
            self._show(event)


@contextmanager
def _watch(chain: Chain, say: Progress) -> Iterator[None]:
    """Say every now and then how far the run is."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5 if sys.stdout.isatty() else 2.0):
            counts = Receipt.of(chain.log.all(), list(chain.settings.steps))
            done = ", ".join(f"{step} {count.events['step.completed']}" for step, count in counts.steps.items())
            say(f"{counts.deliveries} deliveries, {len(chain.plan.injected)} faults; completed: {done}")

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _settings(project: Path, real_time: bool) -> Settings:
    settings = load_settings(project)
    if not real_time:
        return settings
    steps = {name: dataclasses.replace(step, lease=SHORT_LEASE) for name, step in settings.steps.items()}
    return dataclasses.replace(settings, steps=steps, proxy_lease=SHORT_LEASE, min_backoff=1, max_backoff=SHORT_LEASE)


def load_expected(project: Path) -> ModuleType:
    """The project's tests/expected.py. Raises UserError."""
    file = project / "tests" / "expected.py"
    if not file.exists():
        raise UserError("the demo needs tests/expected.py, which says what a run should have done; it is missing")
    spec = importlib.util.spec_from_file_location("project_expected", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and named tuples look their module up
    spec.loader.exec_module(module)
    for name in ("SAMPLE", "SLOT", "expected"):
        if not hasattr(module, name):
            raise UserError(f"tests/expected.py has no {name}")
    return module
