"""`experimental.executions.run` and `map`: workflows that start others of the same emulator."""

from __future__ import annotations

import json

from google.cloud.workflows.executions_v1 import Execution

from .conftest import LOCATION, Desk
from .test_executions_api import ECHO, FAIL, SLEEP

RUN = """
main:
  params: [child]
  steps:
    - start:
        try:
          call: experimental.executions.run
          args:
            workflow_id: ${child.id}
            argument: ${child.argument}
          result: answer
        except:
          as: e
          steps:
            - give:
                return: ${e}
    - done:
        return: ${answer}
"""

MAP = """
main:
  params: [arguments]
  steps:
    - start:
        call: experimental.executions.map
        args:
          workflow_id: child
          arguments: ${arguments}
        result: answers
    - done:
        return: ${answers}
"""


def test_run(desk: Desk) -> None:
    desk.deploy(ECHO, "child")
    parent = desk.deploy(RUN)
    ended = desk.run(parent, json.dumps({"id": "child", "argument": {"x": 1}}))
    assert json.loads(ended.result) == {"x": 1}
    [child] = desk.executions.list_executions(parent=f"{LOCATION}/workflows/child")
    assert child.state == Execution.State.SUCCEEDED


def test_a_child_that_fails(desk: Desk) -> None:
    desk.deploy(FAIL, "child")
    ended = desk.run(desk.deploy(RUN), json.dumps({"id": "child", "argument": None}))
    error = json.loads(ended.result)
    assert error["tags"] == ["OperationError"]
    assert json.loads(error["error"]["payload"]) == {"message": "no", "code": 7}


def test_a_child_that_is_not_deployed(desk: Desk) -> None:
    error = json.loads(desk.run(desk.deploy(RUN), '{"id": "child", "argument": null}').result)
    assert (error["tags"], error["code"]) == (["HttpError"], 404)


def test_map_runs_side_by_side_and_keeps_the_order(desk: Desk) -> None:
    """Twenty sleeps of up to 20 minutes take 20 minutes together, and each has its own execution."""
    source = SLEEP.replace("return: awake", "return: ${seconds}")
    desk.deploy(source, "child")
    seconds = [1200 - 60 * number for number in range(20)]
    ended = desk.run(desk.deploy(MAP), json.dumps(seconds))
    assert json.loads(ended.result) == seconds
    assert 1200 <= ended.duration.total_seconds() < 1260
    assert len(list(desk.executions.list_executions(parent=f"{LOCATION}/workflows/child"))) == 20


def test_cancelling_the_parent_leaves_the_child(desk: Desk) -> None:
    desk.deploy(SLEEP, "child")
    with desk.clock.busy():
        name = desk.start(desk.deploy(RUN), '{"id": "child", "argument": 60}')
        children: list[Execution] = []
        while not children:
            children = list(desk.executions.list_executions(parent=f"{LOCATION}/workflows/child"))
        desk.executions.cancel_execution(name=name)
    assert desk.end(children[0].name).state == Execution.State.SUCCEEDED
    assert desk.end(name).state == Execution.State.CANCELLED
