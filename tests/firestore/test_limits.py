"""What is refused, against both servers where Google's refuses it too."""

from __future__ import annotations

import struct
from typing import Any

import grpc
import pytest
from google.api_core import exceptions

from tools.emulators.firestore.messages import Document, Value, of_method

BIG = 1_048_576


def is_refused(document: Any, fields: dict[str, Any]) -> bool:
    try:
        document.set(fields, retry=None)
    except exceptions.InvalidArgument:
        return True
    return False


def nested(levels: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(levels):
        fields = {"k": fields}
    return fields


def test_a_document_has_at_most_1_mib(document: Any) -> None:
    """By the documented formula: name + 16, fields, 32. Two fields, for one value is limited to 1 MiB - 89."""
    used = sum(len(part) + 1 for part in document.path.split("/")) + 16 + 32 + len("a") + 1 + len("b") + 1 + 500_000
    fields = {"a": b"y" * 500_000, "b": b"x" * (BIG - used)}
    assert not is_refused(document, fields)
    assert len(document.get().get("b")) == BIG - used
    assert is_refused(document, fields | {"b": b"x" * (BIG - used + 1)})


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        pytest.param({"a": b"x" * (BIG - 89)}, {"a": b"x" * (BIG - 88)}, id="bytes"),
        pytest.param({"a": "x" * (BIG - 89)}, {"a": "x" * (BIG - 88)}, id="string"),
        pytest.param({"k" * 1500: 1}, {"k" * 1501: 1}, id="field name"),
        pytest.param({"k" * 1000: {"k" * 499: 1}}, {"k" * 1000: {"k" * 500: 1}}, id="field path"),
        pytest.param(nested(20), nested(21), id="depth of maps"),
        pytest.param({"k": [nested(18)]}, {"k": [nested(19)]}, id="depth with an array"),
    ],
)
def test_limits_of_values(document: Any, allowed: dict[str, Any], refused: dict[str, Any]) -> None:
    assert not is_refused(document, allowed)
    assert is_refused(document, refused)


@pytest.mark.parametrize("bad", ["x" * 1501, "..", ".", "__x__"])
def test_bad_document_ids(document: Any, bad: str) -> None:
    assert is_refused(document.parent.document(bad), {"a": 1})


def test_names_of_documents(firestore: Any, collection: str) -> None:
    assert not is_refused(firestore.collection(collection).document("x" * 1500), {"a": 1})
    assert not is_refused(firestore.document("/".join(["c", "d"] * 100)), {"a": 1})
    assert is_refused(firestore.document("/".join(["c", "d"] * 101)), {"a": 1})


@pytest.mark.parametrize(("operator", "allowed"), [("in", 30), ("not-in", 10), ("array_contains_any", 30)])
def test_limits_of_filters(document: Any, operator: str, allowed: int) -> None:
    from google.cloud.firestore_v1.base_query import FieldFilter

    def count(values: int) -> int:
        query = document.parent.where(filter=FieldFilter("a", operator, list(range(values))))
        return len(list(query.stream(retry=None)))

    assert count(allowed) == 0
    with pytest.raises(exceptions.InvalidArgument):
        count(allowed + 1)


def test_what_only_production_refuses(embedded_firestore: str, connect: Any, collection: str) -> None:
    """Google's emulator takes these (or, for the request, breaks off at 4 MiB)."""
    firestore = connect(embedded_firestore)
    document = firestore.collection(collection).document("a")
    assert not is_refused(document, {"l": list(range(40_000))})
    assert is_refused(document, {"l": list(range(39_999)), "n": 1})
    assert is_refused(firestore.document("/".join(["c", "k" * 1400] * 5)), {"a": 1})
    batch = firestore.batch()
    for number in range(11):
        batch.set(document.parent.document(str(number)), {"b": b"x" * 1_000_000})
    with pytest.raises(exceptions.InvalidArgument, match="payload"):
        batch.commit(retry=None)
    assert [each.id for each in document.parent.list_documents()] == ["a"]


def test_vectors_are_refused_by_name(embedded_firestore: str, connect: Any, collection: str) -> None:
    from google.cloud.firestore_v1.vector import Vector

    with pytest.raises(exceptions.MethodNotImplemented, match="vector"):
        connect(embedded_firestore).collection(collection).document("a").set({"v": Vector([1.0])})


def test_garbage_is_an_error_of_its_call_alone(embedded_firestore: str) -> None:
    """Bytes that are no message, and messages that make no sense, end their call and nothing else."""
    with grpc.insecure_channel(embedded_firestore) as channel:
        commit = channel.unary_unary("/google.firestore.v1.Firestore/Commit")
        bad_name = of_method("Commit", "Request")(database="nonsense").SerializeToString()
        no_operation = of_method("Commit", "Request")(database="projects/p/databases/d", writes=[{}])
        foreign = Document(name="projects/p/databases/e/documents/c/a", fields={"a": Value(null_value=0)})
        elsewhere = of_method("Commit", "Request")(database="projects/p/databases/d", writes=[{"update": foreign}])
        for request in (bad_name, no_operation.SerializeToString(), elsewhere.SerializeToString()):
            with pytest.raises(grpc.RpcError) as caught:
                commit(request)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
        with pytest.raises(grpc.RpcError):
            commit(struct.pack("<q", -1))
        good = of_method("Commit", "Request")(database="projects/p/databases/d").SerializeToString()
        assert of_method("Commit", "Response").FromString(commit(good)).HasField("commit_time")
