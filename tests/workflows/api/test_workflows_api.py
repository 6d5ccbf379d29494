"""The Workflows API, driven by Google's Python client over gRPC."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import workflows_v1
from google.longrunning import operations_pb2

from tools.emulators.clock import JumpClock

from .conftest import LOCATION, Desk

SOURCE = "main:\n  steps:\n    - done:\n        return: 1\n"
OTHER = SOURCE.replace("1", "2")
BAD = "main:\n  steps:\n    - done:\n        retrun: 1\n"


def test_create_and_get(desk: Desk) -> None:
    name = desk.deploy(SOURCE, description="one", labels={"team": "a"}, user_env_vars={"A": "b"})
    assert name == f"{LOCATION}/workflows/w"
    found = desk.workflows.get_workflow(name=name)
    assert found.state == workflows_v1.Workflow.State.ACTIVE
    assert re.fullmatch(r"000001-[0-9a-f]{3}", found.revision_id)
    assert (found.source_contents, found.description, dict(found.labels)) == (SOURCE, "one", {"team": "a"})
    assert dict(found.user_env_vars) == {"A": "b"}
    assert found.create_time == found.update_time == found.revision_create_time
    assert re.fullmatch(
        r"projects/p/serviceAccounts/\d{12}-compute@developer.gserviceaccount.com", found.service_account
    )


def test_the_operation_can_be_asked_for_again(desk: Desk) -> None:
    operation = desk.workflows.create_workflow(
        parent=LOCATION, workflow=workflows_v1.Workflow(source_contents=SOURCE), workflow_id="w"
    )
    assert operation.metadata.verb == "create"
    assert operation.metadata.target == f"{LOCATION}/workflows/w"
    again = desk.workflows.get_operation(operations_pb2.GetOperationRequest(name=operation.operation.name))
    assert again.done
    assert again.name.startswith(f"{LOCATION}/operations/operation-")
    listed = desk.workflows.list_operations(operations_pb2.ListOperationsRequest(name=LOCATION))
    assert [found.name for found in listed.operations] == [again.name]
    desk.workflows.delete_operation(operations_pb2.DeleteOperationRequest(name=again.name))
    with pytest.raises(exceptions.NotFound):
        desk.workflows.get_operation(operations_pb2.GetOperationRequest(name=again.name))


def test_a_source_that_cannot_be_deployed_ends_the_operation_and_leaves_nothing(desk: Desk) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=r"main.yaml:4:\d+: step \"done\": .*retrun"):
        desk.deploy(BAD)
    with pytest.raises(exceptions.NotFound):
        desk.workflows.get_workflow(name=f"{LOCATION}/workflows/w")
    name = desk.deploy(SOURCE)
    before = desk.workflows.get_workflow(name=name)
    update = desk.workflows.update_workflow(workflow=workflows_v1.Workflow(name=name, source_contents=BAD))
    with pytest.raises(exceptions.InvalidArgument):
        update.result(timeout=10)
    assert desk.workflows.get_workflow(name=name) == before


def test_creating_twice_is_refused(desk: Desk) -> None:
    desk.deploy(SOURCE)
    with pytest.raises(exceptions.AlreadyExists):
        desk.deploy(SOURCE)


@pytest.mark.parametrize("workflow_id", ["", "1a", "a-", "a b", "a" * 65, "é"])
def test_a_bad_id_is_refused(desk: Desk, workflow_id: str) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        desk.deploy(SOURCE, workflow_id)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"labels": {"A": "b"}}, "label key 'A'"),
        ({"labels": {"1a": "b"}}, "label key '1a'"),
        ({"labels": {"a" * 64: "b"}}, "63"),
        ({"labels": {"a": "B"}}, "value 'B'"),
        ({"labels": {"a": "b" * 64}}, "63"),
        ({"labels": {f"l{n}": "" for n in range(65)}}, "at most 64"),
        ({"user_env_vars": {"GOOGLE_X": "1"}}, "GOOGLE"),
        ({"user_env_vars": {"WORKFLOWS_X": "1"}}, "WORKFLOWS"),
        ({"user_env_vars": {"": "1"}}, "empty"),
        ({"user_env_vars": {"A": "x" * 4097}}, "4096 bytes"),
        ({"user_env_vars": {f"V{n}": "" for n in range(21)}}, "at most 20"),
        ({"description": "x" * 1001}, "1000"),
    ],
)
def test_bad_fields_are_refused(desk: Desk, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=reason):
        desk.deploy(SOURCE, **fields)


@pytest.mark.parametrize("fields", [{"crypto_key_name": "projects/p/x"}, {"tags": {"a": "b"}}])
def test_what_is_not_emulated_is_refused(desk: Desk, fields: dict[str, Any]) -> None:
    with pytest.raises(exceptions.MethodNotImplemented, match="not emulated"):
        desk.deploy(SOURCE, **fields)


def test_allowed_to_the_limit(desk: Desk) -> None:
    desk.deploy(
        SOURCE,
        labels={**{f"l{n}": "" for n in range(63)}, "é" + "_" * 61 + "-": "x" * 63},
        user_env_vars={f"V{n}": "x" * 4096 for n in range(20)},
        description="x" * 1000,
    )


def test_a_revision_is_made_by_source_account_and_environment(desk: Desk) -> None:
    name = desk.deploy(SOURCE, labels={"a": "1"}, user_env_vars={"A": "1"})
    client = desk.workflows

    def update(mask: list[str], **fields: object) -> str:
        workflow = workflows_v1.Workflow(name=name, **fields)
        answer = client.update_workflow(workflow=workflow, update_mask={"paths": mask}).result(timeout=10)
        return str(answer.revision_id)[:6]

    assert update(["labels", "description"], labels={"b": "2"}, description="two") == "000001"
    assert update(["source_contents"], source_contents=OTHER) == "000002"
    assert update(["service_account"], service_account="me@p.iam.gserviceaccount.com") == "000003"
    assert update(["user_env_vars"]) == "000004"
    found = client.get_workflow(name=name)
    assert (found.source_contents, found.description, dict(found.labels)) == (OTHER, "two", {"b": "2"})
    assert found.service_account == "projects/p/serviceAccounts/me@p.iam.gserviceaccount.com"
    assert dict(found.user_env_vars) == {}
    revisions = list(client.list_workflow_revisions(request={"name": name, "page_size": 3}))
    assert [revision.revision_id[:6] for revision in revisions] == ["000004", "000003", "000002", "000001"]
    oldest = client.get_workflow(request={"name": name, "revision_id": revisions[-1].revision_id})
    assert (oldest.source_contents, oldest.description) == (SOURCE, "two")
    with pytest.raises(exceptions.NotFound):
        client.get_workflow(request={"name": name, "revision_id": "000009-abc"})
    with pytest.raises(exceptions.InvalidArgument, match="updateMask"):
        update(["state"])


def test_without_a_mask_everything_is_replaced(desk: Desk) -> None:
    name = desk.deploy(SOURCE, description="one", labels={"a": "1"})
    desk.workflows.update_workflow(workflow=workflows_v1.Workflow(name=name, source_contents=OTHER)).result(timeout=10)
    found = desk.workflows.get_workflow(name=name)
    assert (found.source_contents, found.description, dict(found.labels)) == (OTHER, "", {})


def test_update_of_nothing_is_not_found(desk: Desk) -> None:
    with pytest.raises(exceptions.NotFound):
        desk.workflows.update_workflow(workflow=workflows_v1.Workflow(name=f"{LOCATION}/workflows/no"))


def test_list_pages_filters_and_orders(desk: Desk) -> None:
    for number in range(5):
        desk.deploy(SOURCE, f"w{number}", labels={"even": str(number % 2 == 0).lower()})
    elsewhere = workflows_v1.Workflow(source_contents=SOURCE)
    desk.workflows.create_workflow(parent="projects/p/locations/europe-west1", workflow=elsewhere, workflow_id="e")

    def listed(**request: object) -> list[str]:
        found = desk.workflows.list_workflows(request={"parent": LOCATION, **request})
        return [workflow.name.rpartition("/")[2] for workflow in found]

    assert listed() == ["w0", "w1", "w2", "w3", "w4"]
    assert listed(page_size=2, order_by="name desc") == ["w4", "w3", "w2", "w1", "w0"]
    assert listed(filter="labels.even=true") == ["w0", "w2", "w4"]
    assert "e" in listed(parent="projects/p/locations/-")
    first = desk.workflows.list_workflows(request={"parent": LOCATION, "page_size": 2})
    token = next(first.pages).next_page_token
    with pytest.raises(exceptions.InvalidArgument, match="other parameters"):
        listed(page_token=token, filter="state=ACTIVE")
    with pytest.raises(exceptions.InvalidArgument, match="not one that this server gave"):
        listed(page_token="x")
    with pytest.raises(exceptions.InvalidArgument, match="pageSize"):
        listed(page_size=-1)


def test_delete(desk: Desk) -> None:
    name = desk.deploy(SOURCE)
    desk.workflows.delete_workflow(name=name).result(timeout=10)
    for ask in (desk.workflows.get_workflow, desk.workflows.delete_workflow):
        with pytest.raises(exceptions.NotFound):
            ask(name=name)
    assert desk.workflows.get_workflow(name=desk.deploy(SOURCE)).revision_id.startswith("000001-")


def test_workflows_outlive_the_emulator(tmp_path: Path, clock: JumpClock) -> None:
    first = Desk(tmp_path / "kept", clock)
    name = first.deploy(SOURCE)
    first.workflows.update_workflow(workflow=workflows_v1.Workflow(name=name, source_contents=OTHER)).result(timeout=10)
    gone = first.deploy(SOURCE, "gone")
    first.workflows.delete_workflow(name=gone)
    first.close()
    second = Desk(tmp_path / "kept", clock)
    try:
        assert [workflow.name for workflow in second.workflows.list_workflows(parent=LOCATION)] == [name]
        assert len(list(second.workflows.list_workflow_revisions(request={"name": name}))) == 2
        assert second.run(name).result == "2"
    finally:
        second.close()
