"""Firestore's document connectors, carried out by a Firestore emulator over gRPC.

Arguments and results have the form of Firestore's REST API: `name` or `parent` or `database` in the path, query
parameters by name (`mask.fieldPaths` or `mask: {fieldPaths}`), and `body`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ..clock import Clock
from .errors import WorkflowError, http_error
from .status import CODES
from .values import Value

_SERVICE = "google.firestore.v1.Firestore"


class Rpc(NamedTuple):
    """How one connector method becomes an RPC.

    `body` is the request's field that holds the argument `body`, "" if the body's fields are the request's own.
    """

    name: str
    request: str
    answer: str
    body: str = ""
    stream: bool = False
    path: str = "name"


_DOCUMENT = "Document"
_METHODS: dict[str, Rpc] = {
    "get": Rpc("GetDocument", "GetDocumentRequest", _DOCUMENT),
    "list": Rpc("ListDocuments", "ListDocumentsRequest", "ListDocumentsResponse", path="parent"),
    "listDocuments": Rpc("ListDocuments", "ListDocumentsRequest", "ListDocumentsResponse", path="parent"),
    "createDocument": Rpc("CreateDocument", "CreateDocumentRequest", _DOCUMENT, body="document", path="parent"),
    "patch": Rpc("UpdateDocument", "UpdateDocumentRequest", _DOCUMENT, body="document"),
    "delete": Rpc("DeleteDocument", "DeleteDocumentRequest", ""),
    "batchGet": Rpc(
        "BatchGetDocuments", "BatchGetDocumentsRequest", "BatchGetDocumentsResponse", stream=True, path="database"
    ),
    "batchWrite": Rpc("BatchWrite", "BatchWriteRequest", "BatchWriteResponse", path="database"),
    "beginTransaction": Rpc("BeginTransaction", "BeginTransactionRequest", "BeginTransactionResponse", path="database"),
    "commit": Rpc("Commit", "CommitRequest", "CommitResponse", path="database"),
    "rollback": Rpc("Rollback", "RollbackRequest", "", path="database"),
    "listCollectionIds": Rpc(
        "ListCollectionIds", "ListCollectionIdsRequest", "ListCollectionIdsResponse", path="parent"
    ),
    "runQuery": Rpc("RunQuery", "RunQueryRequest", "RunQueryResponse", stream=True, path="parent"),
    "runAggregationQuery": Rpc(
        "RunAggregationQuery", "RunAggregationQueryRequest", "RunAggregationQueryResponse", stream=True, path="parent"
    ),
}

_PREFIX = "projects.databases.documents."


class FirestoreConnector:
    """Calls the emulator at `address` (host:port). Thread-safe."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._channel: Any = None

    def refusal(self, method: str) -> str | None:
        """Why `method` (`projects.databases.documents.get`) cannot be called; None if it can."""
        if method.removeprefix(_PREFIX) in _METHODS and method.startswith(_PREFIX):
            return None
        return f"googleapis.firestore.v1.{method} is not emulated: only {_PREFIX}{{{', '.join(_METHODS)}}}"

    def call(self, method: str, args: dict[str, Value], timeout: float, clock: Clock) -> Value:
        """The answer as JSON, a list of them for a stream. Raises WorkflowError HttpError, as REST would answer."""
        import grpc
        from google.protobuf import json_format

        rpc = _METHODS[method.removeprefix(_PREFIX)]
        types = _types()
        try:
            request = json_format.ParseDict(_request(rpc, args), types(rpc.request)())
        except json_format.ParseError as error:
            raise _error("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from None
        hold = clock.hold()
        hold.on()
        try:
            answers = self._send(rpc, request, types, timeout)
        except grpc.RpcError as error:
            raise _error(*_status(error)) from None
        finally:
            hold.off()
        found = [json_format.MessageToDict(answer) for answer in answers]
        return found if rpc.stream else found[0]

    def _send(self, rpc: Rpc, request: Any, types: Callable[[str], Any], timeout: float) -> list[Any]:
        answer = types(rpc.answer) if rpc.answer else _empty()
        make = self._open().unary_stream if rpc.stream else self._open().unary_unary
        stub = make(
            f"/{_SERVICE}/{rpc.name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        metadata = [("authorization", "Bearer owner")]
        found = stub(request, timeout=timeout, metadata=metadata)
        return list(found) if rpc.stream else [found]

    def _open(self) -> Any:
        import grpc

        with self._lock:
            if self._channel is None:
                self._channel = grpc.insecure_channel(self._address)
            return self._channel

    def close(self) -> None:
        with self._lock:
            if self._channel is not None:
                self._channel.close()


def _request(rpc: Rpc, args: dict[str, Value]) -> dict[str, Any]:
    """The request's JSON form. Raises WorkflowError KeyError without the argument of the path."""
    if rpc.path not in args:
        raise WorkflowError.of("KeyError", f"argument {rpc.path!r} is missing")
    request: dict[str, Any] = {}
    for key, value in args.items():
        if key == "body":
            continue
        _put(request, key.split("."), value)
    body = args.get("body")
    if rpc.body:
        request[rpc.body] = dict(body) if isinstance(body, dict) else {}
        if rpc.name == "UpdateDocument":
            request[rpc.body]["name"] = request.pop("name")
    elif isinstance(body, dict):
        request.update(body)
    for mask in ("mask", "updateMask"):
        if isinstance(request.get(mask), dict):
            request[mask] = {"fieldPaths": _as_list(request[mask].get("fieldPaths", []))}
    return request


def _put(target: dict[str, Any], path: list[str], value: Value) -> None:
    for key in path[:-1]:
        target = target.setdefault(key, {})
    target[path[-1]] = value


def _as_list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else [value]


def _status(error: Any) -> tuple[str, str]:
    """Status name and message of a grpc.RpcError, whose base class does not promise them."""
    return error.code().name, error.details() or ""


def _error(status: str, message: str) -> WorkflowError:
    code = CODES.get(status, CODES["UNKNOWN"])[1]
    body = {"error": {"code": code, "message": message, "status": status}}
    return http_error(code, {"content-type": "application/json; charset=UTF-8"}, body)


@cache
def _types() -> Callable[[str], Any]:
    """Name of a message of Firestore's API -> protobuf class."""
    import google.cloud.firestore_v1.types  # noqa: F401 - registers them
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.Default()

    @cache
    def of(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"google.firestore.v1.{name}"))

    return of


def _empty() -> Any:
    from google.protobuf import empty_pb2

    return getattr(empty_pb2, "Empty")  # noqa: B009 - made when the module is imported
