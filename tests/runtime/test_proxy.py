"""The proxy: which run a delivery is, and that one delivery starts it whatever happens on the way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud.workflows import executions_v1

from exactly_once.errors import ConfigurationError, NotAccepted
from exactly_once.identity import RunContext, instant_text, manual_run, run_path, slot_run
from exactly_once.launching import Launcher, StartError
from exactly_once.operate import Operator
from exactly_once.protocol import Protocol
from exactly_once.settings import ProxySettings, proxy_settings
from exactly_once.starting import WorkflowsStarter
from exactly_once.store import Host
from proxy.main import Proxy
from tests.runtime.bench import SCOPE, Bench
from tools.emulators.clock import SystemClock
from tools.emulators.faults import Action, Fault, Plan
from tools.emulators.wire import GrpcWire
from tools.emulators.workflows.api import WorkflowsServer

SLOT = "2026-01-15T02:00:00Z"
WORKFLOW = "projects/test-project/locations/region/workflows/shop"


class Workflows:
    """The starter's other side: keeps the executions it was asked for."""

    def __init__(self) -> None:
        self.executions: list[RunContext] = []
        self.looks = 0
        self.meanwhile: Callable[[], Any] = lambda: None
        self.fail_before: list[Exception] = []
        self.fail_after: list[Exception] = []

    def find(self, run: RunContext) -> str | None:
        self.looks += 1
        found = [index for index, one in enumerate(self.executions) if one.run_id == run.run_id]
        return f"{WORKFLOW}/executions/{found[0]}" if found else None

    def start(self, run: RunContext) -> str:
        self.meanwhile()
        if self.fail_before:
            raise self.fail_before.pop()
        self.executions.append(run)
        if self.fail_after:
            raise self.fail_after.pop()
        return f"{WORKFLOW}/executions/{len(self.executions) - 1}"


@dataclasses.dataclass
class Delivery:
    status: int
    json: Any


class Deliveries:
    """A proxy on the bench's Firestore."""

    def __init__(self, bench: Bench, *, host: Host | None = None, **settings: Any) -> None:
        self.bench = bench
        self.workflows = Workflows()
        base = ProxySettings(
            pipeline=bench.pipeline,
            project="test-project",
            database="(default)",
            retention=timedelta(days=90),
            scopes=(SCOPE,),
            job="nightly",
            time_zone="Europe/Berlin",
            workflow=WORKFLOW,
            lease=120.0,
            on_overlap="allow",
        )
        self.settings = dataclasses.replace(base, **settings)
        protocol = Protocol(bench.store, host or bench.host)
        launcher = Launcher(bench.pipeline, protocol, self.workflows, 120.0, self.settings.retention)
        self.proxy = Proxy(self.settings, launcher, bench.log)

    def send(self, time: str | None = SLOT, job: str | None = "nightly", **headers: str) -> Delivery:
        given = {"X-CloudScheduler-JobName": job, "X-CloudScheduler-ScheduleTime": time, **headers}
        text, status, _ = self.proxy.answer({name: value for name, value in given.items() if value is not None})
        return Delivery(status, json.loads(text))

    def path(self, time: str = SLOT) -> str:
        slot = datetime.fromisoformat(time)
        return run_path(self.bench.pipeline, slot_run(self.bench.pipeline, SCOPE, "nightly", slot, "UTC").run_id)

    def record(self) -> dict[str, Any]:
        found = self.bench.direct.document(self.path()).get().to_dict()
        assert isinstance(found, dict)
        return found


@pytest.fixture
def deliveries(bench: Bench) -> Deliveries:
    return Deliveries(bench)


def test_first_delivery_starts_and_the_next_ones_change_nothing(bench: Bench, deliveries: Deliveries) -> None:
    first = deliveries.send()
    assert (first.status, first.json["status"], first.json["slot"]) == (200, "started", SLOT)
    second = deliveries.send("2026-01-14T18:00:00-08:00")
    assert (second.status, second.json["status"]) == (200, "already_started")
    assert second.json["execution"] == first.json["execution"]
    assert len(deliveries.workflows.executions) == 1
    assert deliveries.workflows.looks == 0
    run = deliveries.workflows.executions[0]
    assert (run.kind, run.job, run.local and run.local.isoformat()) == (
        "schedule",
        "nightly",
        "2026-01-15T03:00:00+01:00",
    )
    record = deliveries.record()
    assert (record["status"], record["slot"], record["kind"]) == ("started", SLOT, "schedule")
    assert json.loads(record["run"]) == run.to_json()
    assert record["expire_at"] - datetime.now(UTC) > timedelta(days=91)
    assert [event["event"] for event in bench.events] == ["run.claimed", "run.started", "run.duplicate"]


def test_rpcs(bench: Bench, deliveries: Deliveries) -> None:
    assert bench.counted(deliveries.send) == ["Commit", "Commit"]
    assert bench.counted(deliveries.send) == ["Commit", "BatchGetDocuments"]


def test_two_at_once(deliveries: Deliveries) -> None:
    inside: list[Delivery] = []
    deliveries.workflows.meanwhile = lambda: inside.append(deliveries.send()) if not inside else None
    assert deliveries.send().status == 200
    assert (inside[0].status, inside[0].json["error"]["code"]) == (409, "busy")
    assert len(deliveries.workflows.executions) == 1


def test_start_that_fails_releases(deliveries: Deliveries) -> None:
    deliveries.workflows.fail_before = [StartError("down")]
    assert deliveries.send().status == 500
    assert deliveries.record()["status"] == "released"
    assert deliveries.send().json["status"] == "started"
    assert len(deliveries.workflows.executions) == 1


def test_start_whose_answer_is_lost_is_adopted(bench: Bench, deliveries: Deliveries) -> None:
    deliveries.workflows.fail_after = [StartError("lost")]
    assert deliveries.send().status == 500
    again = deliveries.send()
    assert (again.status, again.json["execution"]) == (200, f"{WORKFLOW}/executions/0")
    assert len(deliveries.workflows.executions) == 1
    assert len(bench.seen("run.adopted")) == 1


def test_error_of_any_kind_releases(deliveries: Deliveries) -> None:
    deliveries.workflows.fail_before = [RuntimeError("a bug")]
    assert deliveries.send().json["error"] == {"code": "error", "message": "RuntimeError"}
    assert deliveries.record()["status"] == "released"


def test_look_that_fails_starts_nothing(deliveries: Deliveries) -> None:
    deliveries.workflows.fail_before = [StartError("down")]
    deliveries.send()

    def find(run: RunContext) -> str | None:
        raise StartError("the listing is down")

    deliveries.workflows.find = find  # type: ignore[method-assign]
    assert deliveries.send().status == 500
    assert deliveries.workflows.executions == []
    assert deliveries.record()["status"] == "released"


def test_lease_that_ran_out_is_taken_over(bench: Bench, deliveries: Deliveries) -> None:
    """The first delivery is frozen in its start; the second one starts the run; the first one then changes nothing."""

    def meanwhile() -> None:
        deliveries.workflows.meanwhile = lambda: None
        bench.age(path=deliveries.path(), seconds=60)
        assert deliveries.send().status == 409
        bench.age(path=deliveries.path(), seconds=61)
        assert deliveries.send().json["status"] == "started"

    deliveries.workflows.meanwhile = meanwhile
    assert deliveries.send().json["error"]["code"] == "fenced"
    assert deliveries.record()["execution"] == f"{WORKFLOW}/executions/0"
    assert deliveries.send().json["execution"] == f"{WORKFLOW}/executions/0"


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "CANCELLED", "ABORTED"])
@pytest.mark.parametrize("action", [Action.LOSE_REQUEST, Action.LOSE_ANSWER])
@pytest.mark.parametrize("nth", [1, 2])
def test_uncertain_writes(bench: Bench, deliveries: Deliveries, nth: int, action: Action, code: str) -> None:
    bench.plan.add(Fault(action, method="Commit", nth=nth, code=code))
    assert deliveries.send().json["status"] == "started"
    assert deliveries.send().json["status"] == "already_started"
    assert len(deliveries.workflows.executions) == 1
    assert not bench.plan.pending()


def test_started_that_cannot_be_recorded(bench: Bench, deliveries: Deliveries) -> None:
    """Firestore is lost right after the start: 500, and the next delivery adopts once the lease has run out."""
    deliveries.workflows.meanwhile = lambda: bench.plan.add(
        Fault(Action.LOSE_REQUEST, callee="firestore", code="UNAVAILABLE", times=10_000)
    )
    assert deliveries.send().status == 500
    bench.plan.clear()
    deliveries.workflows.meanwhile = lambda: None
    assert deliveries.send().status == 409
    bench.age(path=deliveries.path())
    assert deliveries.send().json["execution"] == f"{WORKFLOW}/executions/0"
    assert len(deliveries.workflows.executions) == 1


# -- which run


@pytest.mark.parametrize(
    ("time", "job", "says"),
    [
        (None, "nightly", "ScheduleTime is missing"),
        (SLOT, None, "JobName is missing"),
        ("soon", "nightly", "RFC 3339"),
        ("2026-01-15", "nightly", "RFC 3339"),
        ("0001-01-01T00:00:00+14:00", "nightly", "too far away"),
        ("9999-12-31T23:59:59-14:00", "nightly", "too far away"),
        (SLOT, "a job", "not a job id"),
        (SLOT, "projects/p/jobs/j", "not a job id"),
    ],
)
def test_malformed_headers_claim_nothing(
    bench: Bench, deliveries: Deliveries, time: str | None, job: str | None, says: str
) -> None:
    answer = deliveries.send(time, job)
    assert (answer.status, answer.json["error"]["code"]) == (400, "malformed")
    assert says in answer.json["error"]["message"]
    assert bench.rpcs == []
    assert len(bench.seen("run.refused")) == 1


def test_case_of_headers(deliveries: Deliveries) -> None:
    first = deliveries.send()
    headers = {"x-cloudscheduler-jobname": "nightly", "X-CLOUDSCHEDULER-SCHEDULETIME": SLOT}
    assert deliveries.send(None, None, **headers).json["run_id"] == first.json["run_id"]


def test_manual_key(deliveries: Deliveries) -> None:
    first = deliveries.send(None, None, **{"X-Exactly-Once-Key": "again 7"})
    assert (first.json["kind"], first.json["slot"]) == ("manual", None)
    assert deliveries.send(SLOT, None, **{"X-Exactly-Once-Key": "again 7"}).json["run_id"] == first.json["run_id"]
    assert deliveries.send().json["run_id"] != first.json["run_id"]
    assert first.json["run_id"] == manual_run(deliveries.bench.pipeline, SCOPE, "again 7").run_id


def test_key_is_what_its_caller_wrote(bench: Bench, deliveries: Deliveries) -> None:
    """A header's bytes arrive as Latin-1; `run --key` knows the text. An empty key is no slot's delivery either."""
    wire = "über".encode().decode("latin-1")
    assert deliveries.send(None, None, **{"X-Exactly-Once-Key": wire}).json["run_id"] == (
        manual_run(bench.pipeline, SCOPE, "über").run_id
    )
    claims = len(bench.rpcs)
    for key in ("", "  ", "\xff"):
        assert deliveries.send(**{"X-Exactly-Once-Key": key}).json["error"]["code"] == "malformed"
    assert len(bench.rpcs) == claims


def test_no_text_of_an_unknown_error_in_the_log(
    bench: Bench, deliveries: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    deliveries.workflows.fail_before.append(RuntimeError("token s3cr3t"))
    assert deliveries.send().status == 500
    assert bench.seen("run.released")[0]["reason"] == "RuntimeError"
    assert "self.starter.start(run)" in bench.seen("run.error")[0]["traceback"]
    assert "s3cr3t" not in json.dumps(bench.events)


def test_scopes(bench: Bench) -> None:
    several = Deliveries(bench, scopes=("p/r/prod", "p/r/test"))
    assert several.send().status == 400
    assert several.send(**{"X-Exactly-Once-Scope": "p/r/other"}).status == 400
    prod = several.send(**{"X-Exactly-Once-Scope": "p/r/prod"})
    test = several.send(**{"x-exactly-once-scope": "p/r/test"})
    assert prod.status == test.status == 200
    assert prod.json["run_id"] != test.json["run_id"]
    assert Deliveries(bench).send(**{"X-Exactly-Once-Scope": "p/r/test"}).status == 400


@pytest.mark.parametrize(
    ("ahead", "skew", "kind", "reads"),
    [
        (-60, 0, "schedule", 0),
        (4, 0, "schedule", 0),
        (3600, 0, "forced", 1),
        (60, -3600, "forced", 1),
        (2, -3600, "schedule", 1),  # our clock is an hour slow: the server's says that the slot has come
        (-10, -3600, "schedule", 1),
    ],
)
def test_forced_run(bench: Bench, ahead: float, skew: float, kind: str, reads: int) -> None:
    deliveries = Deliveries(bench, host=bench.with_process_clock(skew))
    slot = instant_text(datetime.now(UTC) + timedelta(seconds=ahead))
    answers: list[Delivery] = []
    rpcs = bench.counted(lambda: answers.append(deliveries.send(slot)))
    assert answers[0].json["kind"] == kind
    assert rpcs == ["BatchGetDocuments"] * reads + ["Commit", "Commit"]


def test_forced_run_leaves_its_slot_alone(bench: Bench, deliveries: Deliveries) -> None:
    slot = instant_text(datetime.now(UTC) + timedelta(hours=1))
    forced, again = deliveries.send(slot), deliveries.send(slot)
    assert forced.json["run_id"] == again.json["run_id"]
    later = Deliveries(bench, host=bench.with_process_clock(7200))  # its clock does not ask the server's
    assert later.send(slot).json["kind"] == "schedule"
    assert later.workflows.executions[0].run_id != forced.json["run_id"]


# -- with the Workflows client


@pytest.fixture
def workflows(tmp_path: Path) -> Iterator[tuple[WorkflowsStarter, Plan, WorkflowsServer]]:
    server = WorkflowsServer(tmp_path, SystemClock())
    server.start()
    server.deploy(WORKFLOW, "main:\n  params: [run]\n  steps:\n    - answer:\n        return: ${run.run_id}\n")
    plan = Plan()
    wire = GrpcWire(server.grpc_address, "proxy", "workflows", plan, SystemClock())
    starter = WorkflowsStarter(WORKFLOW, {"WORKFLOWS_EMULATOR_HOST": wire.start()})
    yield starter, plan, server
    starter.close()
    wire.stop()
    server.stop()


def names(server: WorkflowsServer) -> list[str]:
    return [one["name"] for one in server.executions.list_executions({"parent": WORKFLOW})["executions"]]


@pytest.mark.parametrize(
    "fault",
    [
        None,
        Fault(Action.LOSE_ANSWER, method="CreateExecution", code="UNAVAILABLE"),
        Fault(Action.LOSE_REQUEST, method="CreateExecution", code="UNAVAILABLE"),
        Fault(Action.DROP, method="CreateExecution"),
    ],
    ids=str,
)
def test_executions_through_the_client(
    bench: Bench, workflows: tuple[WorkflowsStarter, Plan, WorkflowsServer], fault: Fault | None
) -> None:
    """Each RPC is sent once; whatever becomes of its answer, one execution is started, and every delivery names it."""
    starter, plan, server = workflows
    deliveries = Deliveries(bench)
    deliveries.proxy.launcher = dataclasses.replace(deliveries.proxy.launcher, starter=starter)
    if fault:
        plan.add(fault)
        assert deliveries.send().status == 500
    started = deliveries.send()
    assert started.json["status"] == "started"
    assert names(server) == [started.json["execution"]]
    assert deliveries.send().json["execution"] == started.json["execution"]
    calls = [call.method for call in plan.calls if call.method == "CreateExecution"]
    assert len(calls) == (2 if fault and fault.action is Action.LOSE_REQUEST else 1)


@pytest.mark.parametrize("refused", [False, True], ids=["filtered", "filter refused"])
def test_take_over_finds_its_own_execution(
    bench: Bench, workflows: tuple[WorkflowsStarter, Plan, WorkflowsServer], refused: bool
) -> None:
    """Whatever the service makes of the filter, the label decides: neither stuck, nor another run's execution."""
    starter, plan, _server = workflows
    mine, other, absent = (manual_run(bench.pipeline, SCOPE, key) for key in ("mine", "other", "absent"))
    names_of = {run.key: starter.start(run) for run in (mine, other)}
    for run, expected in ((mine, names_of["mine"]), (other, names_of["other"]), (absent, None)):
        if refused:
            plan.add(Fault(Action.LOSE_REQUEST, method="ListExecutions", code="INVALID_ARGUMENT"))
        assert starter.find(run) == expected
        plan.clear()


class Pages:
    """A Workflows client whose listing has empty pages in the middle, as a service that filters while it reads may."""

    def __init__(self, *pages: list[executions_v1.Execution]) -> None:
        self.pages = pages
        self.asked: list[str] = []

    def list_executions(self, *, request: dict[str, Any], retry: None, timeout: float) -> Any:
        self.asked.append(request["page_token"])
        index = int(request["page_token"] or 0)
        token = str(index + 1) if index + 1 < len(self.pages) else ""
        return SimpleNamespace(pages=[SimpleNamespace(executions=self.pages[index], next_page_token=token)])

    def get_execution(self, *, name: str, retry: None, timeout: float) -> executions_v1.Execution:
        return next(one for page in self.pages for one in page if one.name == name)


def test_listing_goes_on_after_an_empty_page_and_ends(bench: Bench) -> None:
    state = executions_v1.Execution.State
    run = manual_run(bench.pipeline, SCOPE, "a key")
    labels = {"run": run.run_id[:63]}
    failed = executions_v1.Execution(name="failed", labels=labels, state=state.FAILED)
    waiting = executions_v1.Execution(name="waiting", labels=labels, state=state.QUEUED)
    starter = WorkflowsStarter(WORKFLOW, {"WORKFLOWS_EMULATOR_HOST": "127.0.0.1:1"})
    starter.close()
    client = Pages([], [failed], [], [waiting])
    starter._client = client  # type: ignore[assignment]
    assert starter.find(run) == "waiting"
    assert client.asked == ["", "1", "2", "3"]
    assert starter.at_work() == "failed"  # what is listed for the state's filter is at work
    assert (starter.ended("failed"), starter.ended("waiting")) == (True, False)
    endless = Pages(*[[] for _ in range(1000)])
    starter._client = endless  # type: ignore[assignment]
    assert starter.find(run) is None
    assert len(endless.asked) < 50


# -- settings


def test_settings_say_what_is_missing() -> None:
    full = {
        "PIPELINE": "shop",
        "GOOGLE_CLOUD_PROJECT": "p",
        "SCOPE": "p/r/prod",
        "WORKFLOW": WORKFLOW,
        "TIME_ZONE": "Europe/Berlin",
    }
    assert proxy_settings(full).scopes == ("p/r/prod",)
    assert proxy_settings({**full, "SCOPES": "a, b"}).scopes == ("a", "b")
    for name in ("PIPELINE", "GOOGLE_CLOUD_PROJECT", "SCOPE", "WORKFLOW"):
        with pytest.raises(ConfigurationError, match=name):
            proxy_settings({key: value for key, value in full.items() if key != name})
    for wrong in ({"TIME_ZONE": "Mars/Base"}, {"ON_OVERLAP": "maybe"}, {"PROXY_LEASE": "long"}, {"PROXY_LEASE": "0"}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            proxy_settings({**full, **wrong})


# -- resume


def test_resume_starts_the_same_run_again(bench: Bench, deliveries: Deliveries) -> None:
    operator = Operator(bench.pipeline, "ops@example.com", bench.protocol, timedelta(days=90), bench.log)
    run_id = deliveries.path().rsplit("/", 1)[1]
    with pytest.raises(NotAccepted):
        operator.resume(run_id, deliveries.workflows, note="too early")
    deliveries.send()
    name = operator.resume(run_id, deliveries.workflows, note="the receiver is back")
    assert name == f"{WORKFLOW}/executions/1"
    assert deliveries.workflows.executions[0] == deliveries.workflows.executions[1]
    record = deliveries.record()
    assert (record["status"], record["execution"]) == ("started", name)
    assert record["resolutions"][0]["who"] == "ops@example.com"
    assert deliveries.send().json["execution"] == name
