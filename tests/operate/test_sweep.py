"""ON_OVERLAP=queue on the whole chain: the job that sweeps, the proxy's process, and a slot that waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exactly_once.firestore import FirestoreStore
from exactly_once.identity import RunContext, run_path, slot_run
from exactly_once.launching import Launcher
from exactly_once.log import Log
from exactly_once.protocol import Protocol
from exactly_once.records import Status
from exactly_once.store import Host
from tests.chain.test_chain import made
from tests.chain.test_front import until
from tools.settings import load

SLOT = datetime(2026, 1, 14, 2, tzinfo=UTC)


class Busy:
    """As if another run were at work."""

    waits = Status.QUEUED

    def obstacle(self, run: RunContext) -> str | None:
        return "another run is at work"

    def waiting(self) -> list[RunContext]:
        return []


class Nobody:
    def find(self, run: RunContext) -> str | None:
        raise AssertionError

    def start(self, run: RunContext) -> str:
        raise AssertionError


@pytest.mark.slow
def test_the_chain_starts_a_queued_slot_within_a_minute(baked: Path, tmp_path: Path) -> None:
    settings = replace(load(baked), on_overlap="queue")
    with made(tmp_path, baked, settings=settings, cron=True, wired=False) as chain, chain.database() as client:
        run = slot_run(settings.pipeline, settings.scope, settings.job, SLOT, settings.time_zone)
        protocol = Protocol(FirestoreStore(client), Host())
        launcher = Launcher(settings.pipeline, protocol, Nobody(), 120.0, timedelta(days=90), Busy())
        assert launcher.deliver(run, Log(lambda line: None)).status is Status.QUEUED
        path = client.document(run_path(settings.pipeline, run.run_id))
        until(lambda: path.get().get("status") == "started", 60)
        assert chain.settle()
        execution = next(each for each in chain.executions() if each["name"] == path.get().get("execution"))
        assert execution["state"] == "SUCCEEDED", execution
        assert any(event["event"] == "run.started" and event["run_id"] == run.run_id for event in chain.events)
