"""The protocol's messages as google-cloud-firestore brings them.

They are untyped: `Message` says where one is meant, and this module is the only one that imports them.
"""

from __future__ import annotations

from typing import Any

from google.cloud.firestore_v1.types import document as _document
from google.cloud.firestore_v1.types import firestore as _firestore
from google.cloud.firestore_v1.types import query as _query
from google.cloud.firestore_v1.types import write as _write
from google.protobuf import empty_pb2, timestamp_pb2
from google.rpc import status_pb2

Message = Any

Document: Any = _document.Document.pb()
Value: Any = _document.Value.pb()
Write: Any = _write.Write.pb()
WriteResult: Any = _write.WriteResult.pb()
StructuredQuery: Any = _query.StructuredQuery.pb()
Status: Any = status_pb2.Status
Empty: Any = vars(empty_pb2)["Empty"]
Timestamp: Any = vars(timestamp_pb2)["Timestamp"]

FieldOperator = _query.StructuredQuery.FieldFilter.Operator
UnaryOperator = _query.StructuredQuery.UnaryFilter.Operator
CompositeOperator = _query.StructuredQuery.CompositeFilter.Operator
Direction = _query.StructuredQuery.Direction


def of_method(method: str, kind: str) -> Any:
    """The message type of an RPC: `of_method("Commit", "Request")`."""
    return getattr(_firestore, method + kind).pb()


def timestamp(microseconds: int) -> Message:
    """Microseconds since the epoch as a Timestamp."""
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def microseconds(value: Message) -> int:
    """A Timestamp as microseconds since the epoch, the precision that Firestore keeps."""
    return int(value.seconds) * 1_000_000 + int(value.nanos) // 1000
