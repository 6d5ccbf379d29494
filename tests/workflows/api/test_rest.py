"""Both APIs over REST, as curl speaks it; what the gRPC types do not know (createTime, step entries) is here too."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tools.emulators.workflows.errors import ConnectionBroken
from tools.emulators.workflows.runtime import Request, Response

from .conftest import LOCATION, Desk
from .test_executions_api import ECHO, FAIL, SLEEP
from .test_workflows_api import BAD, SOURCE

WORKFLOW = f"{LOCATION}/workflows/w"

STEPS = """
main:
  params: [bad]
  steps:
    - first:
        assign:
          - x: 1
    - second:
        call: helper
        args:
          x: ${x}
    - third:
        call: sys.log
        args:
          text: hello
          severity: WARNING
    - fourth:
        try:
          steps:
            - getting:
                call: http.get
                args:
                  url: http://service.test/
                result: answer
        except:
          as: e
          steps:
            - judged:
                switch:
                  - condition: ${bad}
                    raise: ${e}
    - spread:
        parallel:
          for:
            value: v
            in: [1, 2]
            steps:
              - inside:
                  assign:
                    - y: ${v}
    - last:
        return: ${x}
helper:
  params: [x]
  steps:
    - give:
        return: ${x}
"""


class Rest:
    """A client of a desk's REST port."""

    def __init__(self, desk: Desk) -> None:
        self._client = httpx.Client(base_url=desk.server.rest_url, trust_env=False)

    def call(self, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Any:
        """The answer's JSON; its status has to be `status`."""
        answer = self._client.request(method, f"/v1/{path}", json=body, params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def error(self, method: str, path: str, status: int, body: Any = None, **query: Any) -> tuple[str, str]:
        error = self.call(method, path, body, status, **query)["error"]
        assert error["code"] == status
        return error["status"], error["message"]

    def raw(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._client.request(method, path, **more)

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def rest(desk: Desk) -> Any:
    client = Rest(desk)
    yield client
    client.close()


def deploy(rest: Rest, source: str, workflow_id: str = "w", **fields: Any) -> Any:
    body = {"sourceContents": source, **fields}
    return rest.call("POST", f"{LOCATION}/workflows", body, workflowId=workflow_id)


def run(desk: Desk, rest: Rest, argument: str | None = None, **fields: Any) -> Any:
    body = {**fields, **({"argument": argument} if argument is not None else {})}
    name = rest.call("POST", f"{WORKFLOW}/executions", body)["name"]
    desk.server.executions.wait(name, 10**9)
    return rest.call("GET", name)


def test_workflows(desk: Desk, rest: Rest) -> None:
    operation = deploy(rest, SOURCE, labels={"a": "b"})
    assert operation["done"]
    assert operation["response"]["@type"].endswith("google.cloud.workflows.v1.Workflow")
    assert operation["metadata"]["target"] == WORKFLOW
    assert rest.call("GET", operation["name"]) == operation
    found = rest.call("GET", WORKFLOW)
    assert (found["sourceContents"], found["labels"], found["state"]) == (SOURCE, {"a": "b"}, "ACTIVE")
    patched = rest.call("PATCH", WORKFLOW, {"labels": {"c": "d"}}, updateMask="labels")["response"]
    assert (patched["labels"], patched["sourceContents"]) == ({"c": "d"}, SOURCE)
    rest.call("PATCH", WORKFLOW, {"source_contents": ECHO}, 400)  # JSON names are camelCase
    rest.call("PATCH", WORKFLOW, {"sourceContents": ECHO}, updateMask="source_contents")
    revisions = rest.call("GET", f"{WORKFLOW}:listRevisions")["workflows"]
    assert [revision["revisionId"][:6] for revision in revisions] == ["000002", "000001"]
    assert rest.call("GET", WORKFLOW, revisionId=revisions[1]["revisionId"])["sourceContents"] == SOURCE
    assert [item["name"] for item in rest.call("GET", f"{LOCATION}/workflows")["workflows"]] == [WORKFLOW]
    assert rest.call("DELETE", WORKFLOW)["done"]
    assert rest.error("GET", WORKFLOW, 404)[0] == "NOT_FOUND"


def test_a_bad_source_is_an_error_of_the_operation(desk: Desk, rest: Rest) -> None:
    operation = deploy(rest, BAD)
    assert operation["done"]
    assert operation["error"]["code"] == 3
    assert operation["error"]["message"].startswith("main.yaml:4:")


def test_executions(desk: Desk, rest: Rest) -> None:
    deploy(rest, ECHO)
    done = run(desk, rest, '"x"', labels={"run": "a"}, callLogLevel="LOG_ERRORS_ONLY")
    assert (done["state"], done["result"], done["argument"]) == ("SUCCEEDED", '"x"', '"x"')
    assert done["createTime"] <= done["startTime"] <= done["endTime"]
    assert done["duration"].endswith("s")
    assert done["callLogLevel"] == "LOG_ERRORS_ONLY"
    basic = rest.call("GET", done["name"], view="BASIC")
    assert set(basic) == {"name", "startTime", "endTime", "duration", "state", "workflowRevisionId"}
    listed = rest.call("GET", f"{WORKFLOW}/executions", filter='labels.run="a"', pageSize=1, orderBy="createTime")
    assert listed == {"executions": [basic]}
    exported = json.loads(rest.call("GET", f"{done['name']}:exportData")["data"])
    assert exported["execution"] == done


def test_cancel(desk: Desk, rest: Rest) -> None:
    deploy(rest, SLEEP)
    with desk.clock.busy():
        name = rest.call("POST", f"{WORKFLOW}/executions", {"argument": "100"})["name"]
        assert rest.call("POST", f"{name}:cancel", {})["state"] == "CANCELLED"
    assert rest.error("POST", f"{name}:cancel", 400)[0] == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "message"),
    [
        ("POST", f"{LOCATION}/workflows", {"colour": 1}, {"workflowId": "x"}, 'Unknown name "colour"'),
        ("POST", f"{LOCATION}/workflows", [], {"workflowId": "x"}, "has to be an object"),
        ("POST", f"{LOCATION}/workflows", {"callLogLevel": "LOUD"}, {"workflowId": "x"}, "callLogLevel"),
        ("POST", f"{LOCATION}/workflows", {"labels": {"a": 1}}, {"workflowId": "x"}, "has to be a string"),
        ("POST", f"{WORKFLOW}/executions", {"argument": {"x": 1}}, {}, "has to be a string"),
        ("POST", f"{WORKFLOW}/executions", {"labels": []}, {}, "has to be a map"),
        ("POST", f"{WORKFLOW}/executions", {"execution": {}}, {}, "Unknown name"),
        ("GET", f"{WORKFLOW}/executions", None, {"pageSize": "many"}, "whole number"),
        ("GET", f"{WORKFLOW}/executions", None, {"view": "HALF"}, "view"),
    ],
)
def test_bad_requests(
    desk: Desk, rest: Rest, method: str, path: str, body: Any, query: dict[str, Any], message: str
) -> None:
    deploy(rest, ECHO)
    status, found = rest.error(method, path, 400, body, **query)
    assert status == "INVALID_ARGUMENT"
    assert message in found.replace("have to be", "has to be")


def test_what_is_not_json_or_not_a_method(desk: Desk, rest: Rest) -> None:
    assert rest.raw("POST", f"/v1/{LOCATION}/workflows", content=b"{").status_code == 400
    assert rest.raw("POST", f"/v1/{LOCATION}/workflows", content=b" " * (3 * 1024 * 1024)).status_code == 400
    assert rest.error("GET", "projects/p", 404)[0] == "NOT_FOUND"
    assert rest.error("PUT", WORKFLOW, 404)[0] == "NOT_FOUND"


def test_a_client_may_take_the_server_for_its_proxy(desk: Desk, rest: Rest) -> None:
    deploy(rest, SOURCE)
    with httpx.Client(proxy=desk.server.rest_url, trust_env=False) as client:
        assert client.get(f"http://gcp.fake/v1/{WORKFLOW}").json()["name"] == WORKFLOW


def test_step_entries(desk: Desk, rest: Rest) -> None:
    def broken(request: Request) -> Response:
        raise ConnectionBroken("cut")

    desk.transport.answer = broken
    deploy(rest, STEPS)
    done = run(desk, rest, "false")
    assert done["state"] == "SUCCEEDED", done
    entries = rest.call("GET", f"{done['name']}/stepEntries")
    found = {(entry["routine"], entry["step"], entry["stepType"]): entry for entry in entries["stepEntries"]}
    assert {
        ("main", "first", "STEP_ASSIGN"),
        ("main", "second", "STEP_SUBWORKFLOW_CALL"),
        ("helper", "give", "STEP_RETURN"),
        ("main", "third", "STEP_STD_LIB_CALL"),
        ("main", "fourth", "STEP_TRY_RETRY_EXCEPT"),
        ("main", "judged", "STEP_SWITCH"),
        ("main", "spread", "STEP_PARALLEL_FOR"),
        ("main", "inside", "STEP_ASSIGN"),
        ("main", "last", "STEP_RETURN"),
    } <= set(found)
    assert found["main", "first", "STEP_ASSIGN"]["state"] == "STATE_SUCCEEDED"
    assert entries["totalSize"] == len(entries["stepEntries"])
    failed = rest.call("GET", f"{done['name']}/stepEntries", filter='state="FAILED"')["stepEntries"]
    assert [(entry["step"], json.loads(entry["exception"]["payload"])["tags"]) for entry in failed] == [
        ("getting", ["ConnectionError"])
    ]
    newest = rest.call("GET", f"{done['name']}/stepEntries", orderBy="entryId desc", pageSize=1)
    assert newest["stepEntries"][0]["step"] == "last"
    page = rest.call("GET", f"{done['name']}/stepEntries", pageSize=2, skip=1)
    assert [entry["entryId"] for entry in page["stepEntries"]] == ["2", "3"]
    assert page["nextPageToken"]
    one = entries["stepEntries"][0]
    assert rest.call("GET", one["name"]) == one
    assert rest.error("GET", f"{done['name']}/stepEntries/999", 404)[0] == "NOT_FOUND"
    rest.call("POST", f"{done['name']}:deleteExecutionHistory", {})
    assert rest.call("GET", f"{done['name']}/stepEntries") == {"stepEntries": [], "totalSize": 0}


def test_the_steps_of_a_running_execution(desk: Desk, rest: Rest) -> None:
    deploy(rest, SLEEP)
    with desk.clock.busy():
        name = rest.call("POST", f"{WORKFLOW}/executions", {"argument": "100"})["name"]
        for _ in range(1000):
            status = rest.call("GET", name)["status"]
            if status["currentSteps"]:
                break
        assert status == {"currentSteps": [{"routine": "main", "step": "nap"}]}
        [entry] = rest.call("GET", f"{name}/stepEntries")["stepEntries"]
        assert (entry["step"], entry["state"]) == ("nap", "STATE_IN_PROGRESS")
        listed = rest.call("GET", f"{WORKFLOW}/executions", filter="stepName:nap state=ACTIVE")["executions"]
        assert [item["name"] for item in listed] == [name]


@pytest.mark.parametrize(
    ("level", "events"),
    [
        (None, ["started", "log", "finished"]),
        ("LOG_NONE", ["started", "log", "finished"]),
        ("LOG_ERRORS_ONLY", ["started", "log", "raised", "finished"]),
        ("LOG_ALL_CALLS", ["started", "returned", "log", "returned", "raised", "finished"]),
    ],
)
def test_call_logging(desk: Desk, rest: Rest, level: str | None, events: list[str]) -> None:
    def broken(request: Request) -> Response:
        raise ConnectionBroken("cut")

    desk.transport.answer = broken
    deploy(rest, STEPS, **({"callLogLevel": level} if level else {}))
    done = run(desk, rest, "false", labels={"run": "a"})
    seen = [entry["event"].removeprefix("workflow.") for entry in desk.logs]
    assert seen == events
    assert {entry["labels"]["run"] for entry in desk.logs} == {"a"}
    assert {f"{entry['workflow']}/executions/{entry['execution']}" for entry in desk.logs} == {done["name"]}
    [log] = [entry for entry in desk.logs if entry["event"] == "workflow.log"]
    assert (log["severity"], log["message"], log["step"], log["routine"]) == ("WARNING", "hello", "third", "main")


def test_the_level_of_an_execution_counts_before_the_workflow_s(desk: Desk, rest: Rest) -> None:
    deploy(rest, STEPS, callLogLevel="LOG_ALL_CALLS")
    run(desk, rest, "false", callLogLevel="LOG_NONE")
    assert [entry["event"] for entry in desk.logs] == ["workflow.started", "workflow.log", "workflow.finished"]


def test_the_end_of_a_failed_execution_is_logged_as_an_error(desk: Desk, rest: Rest) -> None:
    deploy(rest, FAIL)
    run(desk, rest)
    last = desk.logs[-1]
    assert (last["severity"], last["event"], last["state"]) == ("ERROR", "workflow.finished", "FAILED")
    assert json.loads(last["error"]["payload"])["code"] == 7
