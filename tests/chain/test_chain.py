"""The chain as a whole, on a toy pipeline that protects itself by nothing: what the emulators do, not the runtime."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chain.test_front import gone, until
from tools.emulators import environment
from tools.emulators.chain import Chain, WorkflowError
from tools.emulators.clock import JumpClock, OffsetFile
from tools.emulators.faults import Action, Fault
from tools.emulators.hosting import PortInUseError, bind
from tools.emulators.services import StartError
from tools.emulators.storage import OFFSET_FILE
from tools.settings import Entry, SettingsError, load

TOY = Path(__file__).parent / "toy"
SLOT = datetime(2026, 1, 15, 2, tzinfo=UTC)


def made(state: Path, project: Path = TOY, **options: object) -> Chain:
    """A chain whose clock jumps and begins at the slot."""
    state.mkdir(parents=True, exist_ok=True)
    clock = JumpClock(OffsetFile(state / OFFSET_FILE), quiet=0.02)
    clock.set(SLOT.timestamp())
    return Chain(project, state, clock=clock, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    with made(tmp_path_factory.mktemp("chain")) as chain:
        yield chain


@pytest.fixture
def chain(shared: Chain) -> Iterator[Chain]:
    """One chain for all of this module's tests, as it was when it started."""
    shared.reset()
    yield shared


def names(chain: Chain, service: str | None = None) -> list[str]:
    return [event["event"] for event in chain.events if service in (None, event["service"])]


def test_a_slot_goes_through_every_part(chain: Chain) -> None:
    delivery = chain.deliver(SLOT)
    assert delivery.succeeded and chain.settle()
    execution = chain.executions()[0]
    assert execution["state"] == "SUCCEEDED" and json.loads(execution["argument"]) == {"slot": "2026-01-15T02:00:00Z"}
    assert [fields for path, fields in chain.documents().items() if path.startswith("toys/")] == [
        {"slot": "2026-01-15T02:00:00Z"}
    ]
    ledger = chain.receivers.ledger()
    assert [(row["receiver"], row["step"], row["outcome"]) for row in ledger] == [("TOY_URL", "work", "first")]
    assert ledger[0]["key"] == "2026-01-15T02:00:00Z local-toy-key"  # its secret has a stand-in here
    assert "work.done" in names(chain, "work")
    assert [str(call) for call in chain.plan.calls] == [
        "scheduler->proxy:POST",
        "proxy->workflows:CreateExecution",
        "workflows->work:POST",
        "work->TOY_URL:POST",
        "work->firestore:Commit",
    ]


@pytest.mark.parametrize(
    ("fault", "effects", "executions"),
    [
        (Fault(Action.LOSE_REQUEST, "scheduler", "proxy"), 1, 1),
        (Fault(Action.LOSE_ANSWER, "scheduler", "proxy"), 2, 2),
        (Fault(Action.TWICE, "scheduler", "proxy"), 2, 2),
        (Fault(Action.AGAIN, "scheduler", "proxy"), 2, 2),
        (Fault(Action.LOSE_ANSWER, "proxy", "workflows"), 2, 2),
        (Fault(Action.KILL_BEFORE, "proxy", "workflows"), 1, 1),
        (Fault(Action.KILL_AFTER, "proxy", "workflows"), 2, 2),
        (Fault(Action.LOSE_REQUEST, "workflows", "work"), 1, 1),
        (Fault(Action.LOSE_ANSWER, "workflows", "work"), 2, 1),
        (Fault(Action.KILL_CALLEE, "workflows", "work"), 1, 1),
        (Fault(Action.LOSE_REQUEST, "work", "firestore"), 1, 1),
        (Fault(Action.LOSE_ANSWER, "work", "firestore"), 2, 1),
        (Fault(Action.DROP, "work", "firestore"), 2, 1),
        (Fault(Action.KILL_BEFORE, "work", "firestore"), 1, 1),
        (Fault(Action.KILL_AFTER, "work", "firestore"), 2, 1),
        (Fault(Action.KILL_CALLEE, "work", "firestore"), 1, 1),
        (Fault(Action.LOSE_ANSWER, "work", "TOY_URL"), 1, 1),
        (Fault(Action.KILL_AFTER, "work", "TOY_URL"), 1, 1),
        (Fault(Action.DELAY, "work", "TOY_URL", seconds=10), 1, 1),
        (Fault(Action.DELAY, "workflows", "work", seconds=20), 1, 1),
    ],
    ids=str,
)
def test_without_protection_a_fault_shows(chain: Chain, fault: Fault, effects: int, executions: int) -> None:
    chain.plan.add(fault)
    before = chain.clock.now()
    chain.deliver(SLOT)
    until(lambda: len(chain.executions()) >= executions)
    assert chain.settle()
    assert chain.plan.pending() == []
    assert [e["state"] for e in chain.executions()] == ["SUCCEEDED"] * executions
    written = sum(path.startswith("toys/") for path in chain.documents())
    # a call that the callee's death cuts short may have been carried out before
    assert written == effects or (fault.action is Action.KILL_CALLEE and written in (1, 2))
    assert chain.clock.now() - before >= fault.seconds


def test_a_frozen_step_is_overtaken_and_wakes_as_a_zombie(chain: Chain) -> None:
    chain.plan.add(Fault(Action.FREEZE, "work", "TOY_URL", seconds=1000))
    before = chain.clock.now()
    chain.deliver(SLOT)
    assert chain.settle()
    assert 300 <= chain.clock.now() - before < 1000  # the front's time-out, then a new instance did the work
    until(lambda: "process.resumed" in names(chain, "work"))
    until(lambda: len(chain.documents()) == 2)
    assert chain.clock.now() - before >= 1000


def test_a_step_can_be_killed_frozen_and_restarted_by_hand(chain: Chain) -> None:
    service = chain.services["work"]
    first = service.ensure().child.pid
    service.kill()
    assert gone(first)
    chain.deliver(SLOT)
    assert chain.settle() and service.ensure().child.pid != first
    service.freeze()
    chain.deliver(SLOT)
    assert chain.settle()
    service.resume()
    second = service.ensure().child.pid
    service.restart()
    assert service.ensure().child.pid != second
    assert [e["state"] for e in chain.executions()] == ["SUCCEEDED"] * 2


def test_a_forced_run_carries_the_next_slot(chain: Chain) -> None:
    chain.scheduler.force()
    assert chain.settle()
    argument = json.loads(chain.executions()[0]["argument"])
    assert argument["slot"] > datetime.fromtimestamp(chain.clock.now(), UTC).isoformat()


def test_a_bug_in_a_body_is_an_event_with_its_traceback(chain: Chain) -> None:
    chain.deliver(datetime(2000, 1, 1, tzinfo=UTC))
    assert chain.settle()
    assert chain.executions()[0]["state"] == "FAILED"
    said = "\n".join(str(e.get("message")) for e in chain.events if e["service"] == "work")
    assert "RuntimeError: a bug in the body" in said


def test_reset_leaves_nothing_of_the_run_before(chain: Chain) -> None:
    chain.plan.add(Fault(Action.HANG, "work", "firestore", nth=7))
    chain.deliver(SLOT)
    chain.settle()
    chain.services["work"].freeze()
    chain.reset()
    assert chain.executions() == [] and chain.documents() == {} and chain.receivers.ledger() == []
    assert chain.events == [] and chain.plan.calls == [] and chain.plan.pending() == []
    chain.deliver(SLOT)
    assert chain.settle() and len(chain.documents()) == 1


def test_two_chains_at_once_do_not_meet(chain: Chain, tmp_path: Path) -> None:
    with made(tmp_path / "other") as other:
        other.deliver(SLOT)
        assert other.settle() and len(other.documents()) == 1
    assert chain.executions() == [] and chain.documents() == {}


def test_a_restart_on_the_same_state_carries_on(tmp_path: Path) -> None:
    with made(tmp_path / "state", wired=False) as first:
        first.deliver(SLOT)
        first.settle()
        assert first.plan.calls[-1].callee == "TOY_URL"  # not wired: nothing stands before Firestore
        pids = [instance.child.pid for service in first.services.values() for instance in service.instances]
        assert first.firestore
    assert all(gone(pid) for pid in pids)
    with made(tmp_path / "state", wired=False) as second:
        assert len(second.documents()) == len(second.executions()) == len(second.receivers.ledger()) == 1


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    taken = bind(0)
    port = taken.getsockname()[1]
    chain = made(tmp_path / "state", ports=port - 1)
    with pytest.raises(PortInUseError, match=f"port {port} is in use"):
        chain.start()
    taken.close()
    assert chain.services == {} and chain.firestore is None
    bind(port - 1).close()  # and the port before it is free again


def test_a_workflow_that_cannot_be_deployed_stops_everything_that_was_started(tmp_path: Path) -> None:
    project = shutil.copytree(TOY, tmp_path / "project")
    (project / "workflows" / "main.yaml").write_text("main:\n  steps:\n    - a:\n        call: no.such\n")
    chain = made(tmp_path / "state", project)
    with pytest.raises(WorkflowError, match=r"workflows/main\.yaml"):
        chain.start()
    assert threading.active_count() < 60 and all(not s.instances for s in chain.services.values())


def test_a_function_that_cannot_be_imported_is_named_with_its_traceback(tmp_path: Path) -> None:
    project = shutil.copytree(TOY, tmp_path / "project")
    (project / "functions" / "work" / "main.py").write_text("import no_such_module\n")
    with pytest.raises(StartError, match=r"(?s)work did not start.*No module named 'no_such_module'"):
        made(tmp_path / "state", project).start()


def test_a_stand_in_of_a_connector_is_named_in_the_settings(baked: Path) -> None:
    entry = Entry("pubsub=http://127.0.0.1:9100 bigquery=https://here", "settings.env", 40)
    found = load(baked)
    given = replace(found, entries={**found.entries, "CONNECTORS": entry})
    assert environment.connectors(found) == {}
    assert environment.connectors(given) == {"pubsub": "http://127.0.0.1:9100", "bigquery": "https://here"}
    wrong = replace(found, entries={**found.entries, "CONNECTORS": replace(entry, value="pubsub:9100")})
    with pytest.raises(SettingsError, match=r"settings\.env:40: CONNECTORS has 'pubsub:9100'"):
        environment.connectors(wrong)
