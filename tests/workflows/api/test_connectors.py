"""Connector calls: to a stand-in, refused, and Firestore's documents against a Firestore emulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud.workflows.executions_v1 import Execution

from tools.emulators.clock import JumpClock
from tools.emulators.workflows.errors import ConnectionFailed
from tools.emulators.workflows.runtime import Request, Response

from .conftest import Desk

PUBLISH = """
main:
  steps:
    - publish:
        try:
          call: googleapis.pubsub.v1.projects.topics.publish
          args:
            topic: projects/p/topics/t
            body:
              messages:
                - data: aGk=
            connector_params:
              timeout: 12
          result: answer
        except:
          as: e
          steps:
            - give:
                return: ${e}
    - done:
        return: ${answer}
"""


@pytest.fixture
def pubsub(tmp_path: Path, clock: JumpClock) -> Iterator[Desk]:
    desk = Desk(tmp_path / "pubsub", clock, connectors={"pubsub": "http://stand.in/"})
    yield desk
    desk.close()


def test_a_stand_in_gets_the_arguments_as_one_object(pubsub: Desk) -> None:
    pubsub.transport.answer = lambda request: Response(200, {}, b'{"messageIds": ["1"]}')
    assert json.loads(pubsub.run(pubsub.deploy(PUBLISH)).result) == {"messageIds": ["1"]}
    [sent] = pubsub.transport.sent
    assert (sent.method, sent.url, sent.timeout) == ("POST", "http://stand.in/v1/projects.topics.publish", 12)
    assert json.loads(sent.body or b"") == {
        "topic": "projects/p/topics/t",
        "body": {"messages": [{"data": "aGk="}]},
    }
    assert sent.headers["authorization"].startswith("Bearer ya29.")


def test_an_error_of_a_stand_in_is_an_http_error(pubsub: Desk) -> None:
    pubsub.transport.answer = lambda request: Response(403, {"x": "y"}, b'{"error": {"code": 403}}')
    error = json.loads(pubsub.run(pubsub.deploy(PUBLISH)).result)
    assert (error["tags"], error["code"], error["body"]) == (["HttpError"], 403, {"error": {"code": 403}})


def test_a_stand_in_that_cannot_be_reached(pubsub: Desk) -> None:
    def refuse(request: Request) -> Response:
        raise ConnectionFailed("nobody there")

    pubsub.transport.answer = refuse
    assert json.loads(pubsub.run(pubsub.deploy(PUBLISH)).result)["tags"] == ["ConnectionFailedError"]


def test_an_empty_answer_is_null(pubsub: Desk) -> None:
    assert json.loads(pubsub.run(pubsub.deploy(PUBLISH)).result) is None


def test_a_connector_without_a_stand_in_cannot_be_deployed(desk: Desk) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=r"main.yaml:\d+:\d+: step \"publish\".*pubsub"):
        desk.deploy(PUBLISH)


# --- Firestore


@pytest.fixture
def documents(tmp_path: Path, clock: JumpClock, firestore_host: str) -> Iterator[Desk]:
    """With the embedded Firestore, and with Google's emulator where there is one."""
    desk = Desk(tmp_path / "documents", clock, firestore=firestore_host)
    yield desk
    desk.close()


ROOT = "projects/p/databases/(default)/documents"


def step(name: str, method: str, /, **args: object) -> str:
    call = {"call": f"googleapis.firestore.v1.projects.databases.documents.{method}", "args": args, "result": name}
    return json.dumps({name: call})


def source(*steps: str, result: str) -> str:
    """A workflow of JSON steps."""
    done = json.dumps({"done": {"return": result}})
    return f'{{"main": {{"steps": [{", ".join([*steps, done])}]}}}}'


def run(desk: Desk, *steps: str, result: str) -> Execution:
    return desk.run(desk.deploy(source(*steps, result=result)))


def test_documents_are_created_read_changed_and_deleted(documents: Desk, collection: str) -> None:
    fields = {"n": {"integerValue": "1"}, "s": {"stringValue": "x"}}
    name = f"{ROOT}/{collection}/a"
    ended = run(
        documents,
        step(
            "created", "createDocument", parent=ROOT, collectionId=collection, documentId="a", body={"fields": fields}
        ),
        step(
            "patched",
            "patch",
            name=name,
            **{"updateMask.fieldPaths": ["n"]},
            body={"fields": {"n": {"nullValue": None}}},
        ),
        step("read", "get", name=name),
        step("listed", "list", parent=ROOT, collectionId=collection, mask={"fieldPaths": "s"}),
        step("deleted", "delete", name=name, currentDocument={"exists": True}),
        result="${[created, patched, read, listed, deleted]}",
    )
    assert ended.state == Execution.State.SUCCEEDED, ended.error
    created, patched, read, listed, deleted = json.loads(ended.result)
    assert (created["name"], created["fields"]) == (name, fields)
    assert patched["fields"]["n"] == {"nullValue": None}
    assert read["fields"] == {"n": {"nullValue": None}, "s": {"stringValue": "x"}}
    assert [document["fields"] for document in listed["documents"]] == [{"s": {"stringValue": "x"}}]
    assert deleted == {}


def test_a_query_and_a_commit(documents: Desk, collection: str) -> None:
    write = {"update": {"name": f"{ROOT}/{collection}/b", "fields": {"n": {"integerValue": "5"}}}}
    query = {
        "from": [{"collectionId": collection}],
        "where": {"fieldFilter": {"field": {"fieldPath": "n"}, "op": "GREATER_THAN", "value": {"integerValue": "4"}}},
    }
    ended = run(
        documents,
        step("committed", "commit", database="projects/p/databases/(default)", body={"writes": [write]}),
        step("found", "runQuery", parent=ROOT, body={"structuredQuery": query}),
        step(
            "got",
            "batchGet",
            database="projects/p/databases/(default)",
            body={"documents": [f"{ROOT}/{collection}/no"]},
        ),
        result="${[committed, found, got]}",
    )
    assert ended.state == Execution.State.SUCCEEDED, ended.error
    committed, found, got = json.loads(ended.result)
    assert len(committed["writeResults"]) == 1
    assert [answer["document"]["name"] for answer in found if "document" in answer] == [f"{ROOT}/{collection}/b"]
    assert got[0]["missing"] == f"{ROOT}/{collection}/no"


@pytest.mark.parametrize(
    ("bad", "code", "status"),
    [
        (step("bad", "get", name=f"{ROOT}/none/there"), 404, "NOT_FOUND"),
        (step("bad", "get", name=f"{ROOT}/none/there", colour="red"), 400, "INVALID_ARGUMENT"),
    ],
)
def test_errors_have_the_form_of_rest(documents: Desk, bad: str, code: int, status: str) -> None:
    ended = run(documents, bad, result="${bad}")
    error = json.loads(ended.error.payload)
    assert (error["tags"], error["code"], error["body"]["error"]["status"]) == (["HttpError"], code, status)


def test_what_is_not_of_documents_cannot_be_deployed(documents: Desk) -> None:
    index = json.dumps(
        {
            "i": {
                "call": "googleapis.firestore.v1.projects.databases.collectionGroups.indexes.list",
                "args": {"parent": ""},
            }
        }
    )
    with pytest.raises(exceptions.InvalidArgument, match="not emulated"):
        documents.deploy(source(index, result="1"))
