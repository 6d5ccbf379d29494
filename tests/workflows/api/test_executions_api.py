"""The Workflow Executions API, driven by Google's Python client over gRPC."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import workflows_v1
from google.cloud.workflows import executions_v1
from google.cloud.workflows.executions_v1 import Execution, ExecutionView

from tools.emulators.clock import JumpClock
from tools.emulators.workflows.limits import ARGUMENT_LIMIT
from tools.emulators.workflows.runtime import Request, Response

from .conftest import LOCATION, Desk

ECHO = """
main:
  params: [argument]
  steps:
    - answer:
        return: ${argument}
"""

FAIL = """
main:
  steps:
    - try_it:
        call: inner
inner:
  steps:
    - break_it:
        raise:
          message: "no"
          code: 7
"""

SLEEP = """
main:
  params: [seconds]
  steps:
    - nap:
        call: sys.sleep
        args:
          seconds: ${seconds}
    - done:
        return: awake
"""

POST = """
main:
  steps:
    - send:
        call: http.post
        args:
          url: http://service.test/
          body: {a: 1}
          auth: {type: OIDC, audience: "http://service.test"}
        result: answer
    - done:
        return: ${answer.body}
"""


def test_an_execution_from_start_to_end(desk: Desk) -> None:
    name = desk.deploy(ECHO, labels={"team": "a", "run": "default"})
    created = desk.executions.create_execution(
        parent=name, execution=Execution(argument='{"x": 1.5}', labels={"run": "b" * 63})
    )
    assert created.name.startswith(f"{name}/executions/")
    assert created.state == Execution.State.ACTIVE
    assert not created.end_time
    ended = desk.end(created.name)
    assert ended.state == Execution.State.SUCCEEDED
    assert json.loads(ended.result) == {"x": 1.5}
    assert ended.argument == '{"x": 1.5}'
    assert dict(ended.labels) == {"team": "a", "run": "b" * 63}
    assert ended.workflow_revision_id == desk.workflows.get_workflow(name=name).revision_id
    assert ended.end_time >= ended.start_time
    assert ended.duration == ended.end_time - ended.start_time
    assert [(step.routine, step.step) for step in ended.status.current_steps] == [("main", "answer")]
    assert ended.call_log_level == Execution.CallLogLevel.CALL_LOG_LEVEL_UNSPECIFIED


def test_an_execution_that_fails(desk: Desk) -> None:
    ended = desk.run(desk.deploy(FAIL))
    assert ended.state == Execution.State.FAILED
    assert ended.result == ""
    assert json.loads(ended.error.payload) == {"message": "no", "code": 7}
    [inner, outer] = ended.error.stack_trace.elements
    assert (inner.routine, inner.step, inner.position.line) == ("inner", "break_it", 8)
    assert (outer.routine, outer.step, outer.position.line) == ("main", "try_it", 4)
    assert "break_it" in ended.error.context


def test_create_has_no_idempotency(desk: Desk) -> None:
    name = desk.deploy(ECHO)
    first, second = desk.start(name, "1", labels={"run": "a"}), desk.start(name, "1", labels={"run": "a"})
    assert first != second
    assert len(list(desk.executions.list_executions(request={"parent": name, "filter": 'labels.run="a"'}))) == 2


def test_it_runs_the_latest_revision_and_keeps_to_it(desk: Desk) -> None:
    name = desk.deploy(SLEEP)
    with desk.clock.busy():
        execution = desk.start(name, "60")
        update = workflows_v1.Workflow(name=name, source_contents=ECHO)
        desk.workflows.update_workflow(workflow=update).result(timeout=10)
    assert desk.end(execution).result == '"awake"'
    ended = desk.run(name, '"new"')
    assert ended.result == '"new"'
    assert ended.workflow_revision_id.startswith("000002-")


@pytest.mark.parametrize(
    ("argument", "reason"),
    [("{", "not JSON"), ("NaN", "not JSON"), (json.dumps("x" * (ARGUMENT_LIMIT - 1)), "more than the limit")],
)
def test_a_bad_argument_is_refused(desk: Desk, argument: str, reason: str) -> None:
    name = desk.deploy(ECHO)
    with pytest.raises(exceptions.InvalidArgument, match=reason):
        desk.start(name, argument)
    assert list(desk.executions.list_executions(parent=name)) == []


def test_the_argument_may_have_32_kib(desk: Desk) -> None:
    argument = json.dumps("x" * (ARGUMENT_LIMIT - 2))
    assert desk.run(desk.deploy(ECHO), argument).result == argument


def test_a_result_that_is_too_large_fails_the_execution(desk: Desk) -> None:
    source = """
main:
  steps:
    - grow:
        assign:
          - x: "0123456789abcdef"
          - n: 0
    - double:
        switch:
          - condition: ${n < 14}
            steps:
              - again:
                  assign:
                    - x: ${x + x}
                    - n: ${n + 1}
                  next: double
    - done:
        return: ${[x, x, x]}
"""
    ended = desk.run(desk.deploy(source))
    assert ended.state == Execution.State.FAILED
    assert "ResourceLimitError" in ended.error.payload


@pytest.mark.parametrize(
    "labels", [{"A": "b"}, {"a": "B"}, {"a" * 64: ""}, {"a": "b" * 64}, {f"l{number}": "" for number in range(65)}]
)
def test_bad_labels_are_refused(desk: Desk, labels: dict[str, str]) -> None:
    name = desk.deploy(ECHO)
    with pytest.raises(exceptions.InvalidArgument, match="label"):
        desk.start(name, labels=labels)


def test_unknown_names(desk: Desk) -> None:
    with pytest.raises(exceptions.NotFound):
        desk.start(f"{LOCATION}/workflows/no")
    with pytest.raises(exceptions.NotFound):
        list(desk.executions.list_executions(parent=f"{LOCATION}/workflows/no"))
    name = desk.deploy(ECHO)
    for ask in (desk.executions.get_execution, desk.executions.cancel_execution):
        with pytest.raises(exceptions.NotFound):
            ask(name=f"{name}/executions/no")
        with pytest.raises(exceptions.InvalidArgument):
            ask(name="executions/no")


def test_views(desk: Desk) -> None:
    execution = desk.start(desk.deploy(ECHO), "1", labels={"run": "a"})
    desk.end(execution)
    get = desk.executions.get_execution
    basic = get(request={"name": execution, "view": ExecutionView.BASIC})
    assert (basic.argument, basic.result, dict(basic.labels)) == ("", "", {})
    assert basic.state == Execution.State.SUCCEEDED
    assert basic.start_time
    assert basic.end_time
    assert basic.duration is not None
    assert basic.workflow_revision_id
    parent = execution.partition("/executions/")[0]
    [listed] = desk.executions.list_executions(parent=parent)
    assert listed == basic
    [full] = desk.executions.list_executions(request={"parent": parent, "view": ExecutionView.FULL})
    assert full == get(name=execution)
    assert dict(full.labels) == {"run": "a"}


def test_list_filters_orders_and_pages(desk: Desk) -> None:
    name = desk.deploy(ECHO)
    made = []
    for number in range(5):
        made.append(desk.start(name, str(number), labels={"run": "odd" if number % 2 else "even"}))
        desk.end(made[-1])
        desk.clock.sleep(10)

    def listed(**request: object) -> list[int]:
        found = desk.executions.list_executions(request={"parent": name, **request})
        return [made.index(execution.name) for execution in found]

    assert listed() == [4, 3, 2, 1, 0]
    assert listed(page_size=2) == [4, 3, 2, 1, 0]
    assert listed(filter='labels.run="odd"') == [3, 1]
    assert listed(filter='label.run="odd" AND state="SUCCEEDED"', order_by="startTime") == [1, 3]
    assert listed(filter="state=ACTIVE") == []
    since = desk.executions.get_execution(name=made[3]).start_time.isoformat()
    assert listed(filter=f'startTime>="{since}"') == [4, 3]
    assert listed(filter=f'executionId="{made[2].rpartition("/")[2]}"') == [2]
    with pytest.raises(exceptions.InvalidArgument, match="unknown field"):
        listed(filter="colour=red")
    with pytest.raises(exceptions.InvalidArgument, match="orderBy"):
        listed(order_by="argument")


def test_a_later_page_is_not_moved_by_a_new_execution(desk: Desk) -> None:
    name = desk.deploy(ECHO)
    made = [desk.start(name) for _ in range(4)]
    pages = desk.executions.list_executions(request={"parent": name, "page_size": 2}).pages
    seen = [execution.name for execution in next(pages).executions]
    desk.start(name)
    seen += [execution.name for execution in next(pages).executions]
    assert seen == made[::-1]


def test_page_sizes_are_limited_by_the_view(desk: Desk) -> None:
    name = desk.deploy(ECHO)
    for _ in range(101):
        desk.server.executions.create_execution({"parent": name})
    listing = desk.executions.list_executions
    assert len(next(listing(parent=name).pages).executions) == 100
    assert len(next(listing(request={"parent": name, "page_size": 500}).pages).executions) == 101
    full = {"parent": name, "page_size": 500, "view": ExecutionView.FULL}
    assert len(next(listing(request=full).pages).executions) == 100


def test_cancel_wakes_a_sleeper(desk: Desk) -> None:
    with desk.clock.busy():  # the sleep does not pass
        execution = desk.start(desk.deploy(SLEEP), "1000000")
        cancelled = desk.executions.cancel_execution(name=execution)
    assert cancelled.state == Execution.State.CANCELLED
    assert cancelled.end_time
    assert cancelled.error.context
    assert desk.end(execution) == cancelled
    with pytest.raises(exceptions.FailedPrecondition, match="CANCELLED"):
        desk.executions.cancel_execution(name=execution)


def test_deleting_a_workflow_cancels_and_deletes_its_executions(desk: Desk) -> None:
    name = desk.deploy(SLEEP)
    ended = desk.run(name, "1").name
    with desk.clock.busy():
        active = desk.start(name, "1000")
        desk.workflows.delete_workflow(name=name).result(timeout=10)
    for execution in (ended, active):
        with pytest.raises(exceptions.NotFound):
            desk.executions.get_execution(name=execution)
    assert list(desk.executions.list_executions(parent=desk.deploy(SLEEP))) == []


def test_cancel_ends_an_execution_whose_call_is_under_way(desk: Desk) -> None:
    arrived = threading.Event()

    def hang(request: Request) -> Response:
        arrived.set()
        return desk.transport.hang(request)

    desk.transport.answer = hang
    execution = desk.start(desk.deploy(POST))
    assert arrived.wait(10)
    assert desk.executions.cancel_execution(name=execution).state == Execution.State.CANCELLED
    desk.transport.closed.set()
    assert desk.end(execution).state == Execution.State.CANCELLED


def test_calls_carry_a_token_of_the_workflow_s_account(desk: Desk) -> None:
    desk.transport.answer = lambda request: Response(200, {"content-type": "application/json"}, b'{"b": [2]}')
    name = desk.deploy(POST, service_account="me@p.iam.gserviceaccount.com")
    assert json.loads(desk.run(name).result) == {"b": [2]}
    [sent] = desk.transport.sent
    assert (sent.method, json.loads(sent.body or b"")) == ("POST", {"a": 1})
    token = sent.headers["authorization"].removeprefix("Bearer ")
    claims = desk.server.tokens.verify(token, "http://service.test", desk.clock.now())
    assert claims["email"] == "me@p.iam.gserviceaccount.com"


def test_the_environment_of_an_execution(desk: Desk) -> None:
    names = ["LOCATION", "PROJECT_ID", "PROJECT_NUMBER", "SERVICE_ACCOUNT_NAME", "WORKFLOW_ID", "WORKFLOW_EXECUTION_ID"]
    names = [f"GOOGLE_CLOUD_{name}" for name in [*names, "WORKFLOW_REVISION_ID"]]
    items = ", ".join(f'sys.get_env("{name}")' for name in [*names, "MINE"])
    source = f"main:\n  steps:\n    - all:\n        return: ${{[{items}]}}\n"
    workflow = desk.deploy(source, user_env_vars={"MINE": "x"}, service_account="me@p.iam.gserviceaccount.com")
    ended = desk.run(workflow)
    execution = ended.name.rpartition("/")[2]
    location, project, number, account, workflow_id, execution_id, revision, mine = json.loads(ended.result)
    assert (location, project, workflow_id, execution_id) == ("us-central1", "p", "w", execution)
    assert (account, revision, mine) == ("me@p.iam.gserviceaccount.com", ended.workflow_revision_id, "x")
    assert len(number) == 12


def test_executions_outlive_the_emulator(tmp_path: Path, clock: JumpClock) -> None:
    first = Desk(tmp_path / "kept", clock)
    name = first.deploy(ECHO)
    kept = first.run(name, '"x"', labels={"run": "a"})
    with clock.busy():
        cut = first.start(first.deploy(SLEEP, "sleeper"), "1000")
        first.close()
    second = Desk(tmp_path / "kept", clock)
    try:
        assert second.executions.get_execution(name=kept.name) == kept
        [found] = second.executions.list_executions(request={"parent": name, "filter": "labels.run=a"})
        assert found.name == kept.name
        failed = second.executions.get_execution(name=cut)
        assert failed.state == Execution.State.FAILED
        assert "the emulator ended while this execution was active" in failed.error.context
        assert json.loads(failed.error.payload)["tags"] == ["SystemError"]
        assert second.run(name, "2").result == "2"
    finally:
        second.close()


def test_an_execution_of_a_killed_emulator_is_failed(tmp_path: Path, clock: JumpClock) -> None:
    """The journal of an emulator that had no time to stop says ACTIVE."""
    first, second = Desk(tmp_path / "kept", clock), None
    try:
        with clock.busy():
            cut = first.start(first.deploy(SLEEP), "1000")
            second = Desk(tmp_path / "kept", clock)
            assert second.executions.get_execution(name=cut).state == Execution.State.FAILED
    finally:
        first.close()
        if second is not None:
            second.close()


def test_old_executions_are_forgotten(tmp_path: Path, clock: JumpClock) -> None:
    first = Desk(tmp_path / "kept", clock)
    name = first.deploy(ECHO)
    first.run(name, "1")
    clock.sleep(91 * 24 * 3600)
    young = first.run(name, "2").name
    first.close()
    second = Desk(tmp_path / "kept", clock)
    try:
        assert [found.name for found in second.executions.list_executions(parent=name)] == [young]
    finally:
        second.close()


def test_more_than_the_concurrency_is_queued(tmp_path: Path, clock: JumpClock) -> None:
    desk = Desk(tmp_path / "kept", clock, concurrency=2)
    try:
        with clock.busy():
            name = desk.deploy(SLEEP)
            made = [desk.start(name, "100") for _ in range(3)]
            states = [desk.executions.get_execution(name=execution).state.name for execution in made]
            assert states == ["ACTIVE", "ACTIVE", "QUEUED"]
            fourth = desk.start(name, "100")
            assert desk.executions.cancel_execution(name=fourth).state == Execution.State.CANCELLED
        assert [desk.end(execution).state.name for execution in made] == ["SUCCEEDED"] * 3
        first_free = min(desk.end(execution).end_time for execution in made[:2])
        assert desk.end(made[2]).start_time >= first_free
    finally:
        desk.close()


def test_executions_run_side_by_side(desk: Desk) -> None:
    """Twenty calls are under way at once: none is answered before all have arrived."""
    together = threading.Barrier(20)

    def answer(request: Request) -> Response:
        together.wait(10)
        return Response(200, {}, b"")

    desk.transport.answer = answer
    name = desk.deploy(POST)
    made = [desk.start(name) for _ in range(20)]
    assert {desk.end(execution).state for execution in made} == {Execution.State.SUCCEEDED}


def test_stopping_leaves_no_thread(tmp_path: Path, clock: JumpClock) -> None:
    before = set(threading.enumerate())
    desk = Desk(tmp_path / "kept", clock)
    desk.transport.answer = desk.transport.hang
    with clock.busy():
        desk.start(desk.deploy(SLEEP), "1000")
        desk.start(desk.deploy(POST, "poster"))
    desk.close()
    assert [thread.name for thread in set(threading.enumerate()) - before] == []


def test_a_port_in_use_is_named(tmp_path: Path, clock: JumpClock, desk: Desk) -> None:
    from tools.emulators.workflows.api import WorkflowsServer

    for ports in (
        {"grpc_port": int(desk.server.grpc_address.rpartition(":")[2])},
        {"rest_port": int(desk.server.rest_url.rpartition(":")[2])},
    ):
        second = WorkflowsServer(None, clock)
        with pytest.raises(OSError, match=str(next(iter(ports.values())))):
            second.start(**ports)


def test_deploy_in_process(desk: Desk) -> None:
    name = f"{LOCATION}/workflows/w"
    first = desk.server.deploy(name, ECHO, env={"A": "1"}, service_account="a@p.iam.gserviceaccount.com")
    second = desk.server.deploy(name, SLEEP)
    assert [first["revisionId"][:6], second["revisionId"][:6]] == ["000001", "000002"]
    from tools.emulators.workflows.status import ApiError

    with pytest.raises(ApiError, match=r"main\.yaml:\d"):
        desk.server.deploy(name, "main: 1")
    assert desk.run(name, "1").state == executions_v1.Execution.State.SUCCEEDED
