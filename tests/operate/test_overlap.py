"""ON_OVERLAP: what a slot does while another run is at work, on real records and executions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from exactly_once.errors import StoreError
from exactly_once.identity import RunContext, manual_run
from exactly_once.launching import ByHand, Launcher, Started, StartError
from exactly_once.log import Log
from exactly_once.lookups import Lookups
from exactly_once.overlap import RecordedOverlap
from exactly_once.records import Status
from exactly_once.settings import proxy_settings
from exactly_once.starting import WorkflowsStarter
from proxy.main import Proxy
from tests.operate.office import Office


@dataclass
class Yard:
    """A pipeline whose first step waits for `go`."""

    office: Office
    go: threading.Event = field(default_factory=threading.Event)
    events: list[str] = field(default_factory=list)

    def launcher(self, waits: Status) -> Launcher:
        starter = WorkflowsStarter(
            self.office.settings.workflow_name, {"WORKFLOWS_EMULATOR_HOST": self.office.workflows.grpc_address}
        )
        overlap = RecordedOverlap(waits, Lookups(self.office.client, self.office.settings.pipeline), starter)
        return replace(self.office.launcher(), overlap=overlap, starter=starter)

    def deliver(self, run: RunContext, waits: Status = Status.QUEUED, **changed: Any) -> Started:
        return replace(self.launcher(waits), **changed).deliver(run, Log(self.office.write))

    def sweep(self, **changed: Any) -> list[tuple[RunContext, Started]]:
        return replace(self.launcher(Status.QUEUED), **changed).sweep(Log(self.office.write))

    def free(self, started: Started) -> None:
        """Let what is at work end."""
        self.go.set()
        assert self.office.ended(started.execution) == "SUCCEEDED"
        self.go.clear()

    def status(self, run: RunContext) -> str:
        return str(self.office.record(run.run_id)["status"])


@pytest.fixture
def yard(office: Office) -> Iterator[Yard]:
    made = Yard(office)
    office.bodies["take"] = lambda run, payload: {"went": made.go.wait(30)}
    yield made
    made.go.set()


def test_a_skipped_slot_stays_skipped_until_an_operator_starts_it(yard: Yard) -> None:
    first = yard.deliver(yard.office.slot(1), Status.SKIPPED)
    second = yard.deliver(yard.office.slot(2), Status.SKIPPED)
    assert (second.status, second.by_us) == (Status.SKIPPED, True)
    assert yard.office.record(yard.office.slot(2).run_id)["why"].endswith("is at work")
    shown = yard.office.op("runs")
    assert "skipped" in shown.out and "active" in shown.out
    yard.free(first)
    assert not yard.deliver(yard.office.slot(2), Status.SKIPPED).by_us  # a late duplicate changes nothing
    assert yard.status(yard.office.slot(2)) == "skipped"
    by_hand = yard.deliver(yard.office.slot(2), Status.SKIPPED, by=ByHand("ops", "it is needed after all"))
    assert by_hand.status is Status.STARTED
    assert yard.office.record(yard.office.slot(2).run_id)["by"]["who"] == "ops"
    yard.free(by_hand)


def test_queued_slots_start_one_by_one_in_their_order(yard: Yard) -> None:
    at_work = yard.deliver(yard.office.slot(1))
    later = [yard.office.slot(day) for day in (3, 2)]
    assert [yard.deliver(run).status for run in later] == [Status.QUEUED] * 2
    assert yard.deliver(later[0]).status is Status.QUEUED  # a duplicate decides anew, and waits on
    assert [started.status for _, started in yard.sweep()] == [Status.QUEUED]
    for day in (2, 3):
        yard.free(at_work)
        [(run, at_work)] = yard.sweep()
        assert (run.slot and run.slot.day, at_work.status) == (day, Status.STARTED)
        assert [one.status for _, one in yard.sweep()] == [Status.QUEUED] * (day == 2)
    yard.free(at_work)
    assert yard.sweep() == []
    assert yard.office.ran.count("report") == 3


def test_a_slot_behind_a_queued_one_waits_even_if_nothing_is_at_work(yard: Yard) -> None:
    first = yard.deliver(yard.office.slot(1))
    yard.deliver(yard.office.slot(2))
    yard.free(first)
    assert yard.deliver(yard.office.slot(3)).status is Status.QUEUED
    [(run, started)] = yard.sweep()
    assert run == yard.office.slot(2)
    yard.free(started)


def test_runs_by_hand_wait_for_nothing_and_are_waited_for(yard: Yard) -> None:
    first = yard.deliver(yard.office.slot(1))
    by_hand = yard.deliver(manual_run(yard.office.settings.pipeline, yard.office.settings.scope, "k"))
    assert by_hand.status is Status.STARTED
    yard.free(first)
    yard.go.clear()
    third = yard.deliver(manual_run(yard.office.settings.pipeline, yard.office.settings.scope, "k2"))
    assert yard.deliver(yard.office.slot(2)).status is Status.QUEUED
    yard.free(third)


@dataclass
class Fails:
    """A starter whose start fails, before or after it has taken effect."""

    inner: Any
    after: bool

    def find(self, run: RunContext) -> str | None:
        found: str | None = self.inner.find(run)
        return found

    def start(self, run: RunContext) -> str:
        if self.after:
            self.inner.start(run)
        raise StartError("lost")


@pytest.mark.parametrize("after", [False, True])
def test_a_start_that_fails_in_a_sweep_is_found_by_the_next(yard: Yard, after: bool) -> None:
    first = yard.deliver(yard.office.slot(1))
    yard.deliver(yard.office.slot(2))
    yard.free(first)
    starter = Fails(yard.launcher(Status.QUEUED).starter, after)
    with pytest.raises(StoreError):
        yard.sweep(starter=starter)
    assert yard.status(yard.office.slot(2)) == "released"
    [(_, started)] = yard.sweep()
    assert started.status is Status.STARTED
    yard.free(started)
    assert yard.office.ran.count("report") == 2


def test_a_sweep_that_dies_at_work_is_made_up_for_when_its_lease_has_run_out(yard: Yard) -> None:
    first = yard.deliver(yard.office.slot(1))
    yard.deliver(yard.office.slot(2))
    yard.free(first)

    class Dies:
        def find(self, run: RunContext) -> str | None:
            raise SystemExit

        def start(self, run: RunContext) -> str:
            raise AssertionError

    with pytest.raises(SystemExit):
        yard.sweep(starter=Dies())
    assert yard.status(yard.office.slot(2)) == "in_progress"
    assert yard.sweep() == [] and yard.deliver(yard.office.slot(3)).status is Status.QUEUED
    record = yard.office.record(yard.office.slot(2).run_id)
    path = yard.office.client.document(f"{yard.office.settings.pipeline}_runs/{yard.office.slot(2).run_id}")
    path.update({"claimed_at": record["claimed_at"] - timedelta(seconds=200)})
    [(run, started)] = yard.sweep()
    assert (run, started.status) == (yard.office.slot(2), Status.STARTED)
    yard.free(started)


def test_the_proxy_answers_what_became_of_a_slot_and_sweeps_when_asked(yard: Yard) -> None:
    office = yard.office
    settings = proxy_settings(
        {
            **office.settings.proxy_environment(),
            "ON_OVERLAP": "queue",
        }
    )
    proxy = Proxy(settings, yard.launcher(Status.QUEUED), Log(office.write))

    def send(**headers: str) -> Any:
        text, status, _ = proxy.answer({name.replace("_", "-"): value for name, value in headers.items()})
        assert status == 200, text
        return json.loads(text)

    def slot(day: int) -> Any:
        time = f"2026-01-0{day}T02:00:00Z"
        return send(X_CloudScheduler_JobName=office.settings.job, X_CloudScheduler_ScheduleTime=time)

    first = slot(1)
    assert first["status"] == "started"
    assert (slot(2)["status"], slot(2)["execution"]) == ("queued", "")
    assert send(X_Exactly_Once_Sweep="queued")["swept"] == [{"run_id": slot(2)["run_id"], "status": "queued"}]
    yard.free(Started(first["execution"], by_us=True))
    assert send(x_exactly_once_sweep="queued")["swept"] == [{"run_id": office.slot(2).run_id, "status": "started"}]
    assert send(X_Exactly_Once_Sweep="queued") == {"swept": []}
    assert slot(2)["status"] == "already_started"
    yard.free(Started(slot(2)["execution"], by_us=False))
