"""The protocol under every order of events; and, changed for the worse, found out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exactly_once.records import Status

from .cases import CASES, LARGE, MEETING, Setup
from .explorer import Violation
from .runs import GAPS, OverlapCase, RunCase

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "{{cookiecutter.project_slug}}"


SLOWER = ("retry", "hold, an operator says redo", "hold, verify, a lease shorter than the attempt", "a slot is skipped")
"""Of the cases, those that take several seconds and whose code the others run as well."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOWER else name for name in CASES]
)
def test_every_promise_holds_in_every_order_of_events(name: str) -> None:
    interleavings, states = CASES[name].explore()
    print(f"{name}: {interleavings:,} interleavings over {states:,} states")
    assert interleavings > 1000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LARGE)
def test_every_promise_holds_with_more_attempts_and_faults(name: str) -> None:
    interleavings, states = LARGE[name].explore()
    print(f"{name}: {interleavings:,} interleavings over {states:,} states")
    assert interleavings > 100_000


def test_a_lease_that_outlasts_the_last_gap_loses_a_slot() -> None:
    """Why the proxy's lease is 120 s and not the three minutes that come to mind."""
    with pytest.raises(Violation, match="a slot whose last delivery is undisturbed"):
        Setup(RunCase(GAPS, lease=180.0), attempts=len(GAPS) + 1, faults=len(GAPS), ticks=0).explore()


@pytest.mark.parametrize("left", [Status.RELEASED, Status.IN_PROGRESS])
def test_a_sweep_that_looks_for_queued_slots_alone_loses_one(left: Status) -> None:
    """A sweep may die at work on a slot that Cloud Scheduler has done with."""
    finds = frozenset({Status.QUEUED, Status.RELEASED, Status.IN_PROGRESS} - {left})
    with pytest.raises(Violation, match="a slot that met another run"):
        Setup(OverlapCase(MEETING, finds=finds), attempts=5, faults=3, ticks=0).explore()


# name -> module, what stands there, what stands there instead, the case that finds it, the promise that breaks
MUTATIONS: dict[str, tuple[str, str, str, str, str]] = {
    "the attempt is not checked when settling": (
        "protocol.py",
        "if seen.attempt_id != claim.attempt_id:",
        "if False:",
        "retry",
        "a fenced attempt changes nothing",
    ),
    "a lease is judged by the local clock": (
        "records.py",
        "(end - self.read_time)",
        "(end - datetime.now(end.tzinfo))",
        "retry",
        "no take-over while the lease runs",
    ),
    "AlreadyExists is taken for a duplicate": (
        "protocol.py",
        "if seen and seen.attempt_id == offer.attempt_id and seen.status is Status.IN_PROGRESS:",
        "if False:",
        "retry",
        "no attempt is busy with its own claim",
    ),
    "an unknown outcome is released under hold": (
        "external.py",
        'if verdict is UNKNOWN and self.step.on_unknown == "hold":\n                raise self._hold(_text(error))',
        "if False:\n                raise self._hold(_text(error))",
        "hold",
        "under hold the effect is begun once",
    ),
    "a crash is no unknown outcome under hold": (
        "external.py",
        'if verdict is UNKNOWN and self.step.on_unknown == "hold":\n                raise self._hold(f"attempt',
        'if False:\n                raise self._hold(f"attempt',
        "hold",
        "under hold the effect is begun once",
    ),
    "a look is believed under a short lease": (
        "external.py",
        "if verdict is NOT_DONE and not self.runtime.settings.outlasts_attempt:",
        "if False:",
        "hold, verify, a lease shorter than the attempt",
        "the effect arrives once",
    ),
    "a transaction does not look for its own commit": (
        "transactional.py",
        "if record and not may_take(record, self.request):",
        "if record and record.attempt_id != self.attempt_id and not may_take(record, self.request):",
        "transactional",
        "a transactional effect is committed at most once",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_found(name: str, tmp_path: Path) -> None:
    module, old, new, case, promise = MUTATIONS[name]
    shutil.copytree(PROJECT / "exactly_once", tmp_path / "exactly_once")
    source = (tmp_path / "exactly_once" / module).read_text()
    assert source.count(old) == 1, "the mutation has lost its place"
    (tmp_path / "exactly_once" / module).write_text(source.replace(old, new))
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    run = subprocess.run(
        [sys.executable, "-m", "tests.model", case],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert f"{case}: broken: " in run.stdout, run.stdout + run.stderr
    assert promise in run.stdout
