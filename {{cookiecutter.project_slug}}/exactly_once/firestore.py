"""The store on Firestore. Every RPC is sent once with a short time-out: the client's own retries are switched off,
since a write that the client repeats by itself is answered AlreadyExists, or a failed precondition, for its own
success.

A record's writes are put together as plain protocol buffers: the client's own way through its wrapper classes takes
about a third of the time that a protected call costs.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

from google.api_core import exceptions as api
from google.cloud import firestore
from google.cloud.firestore_v1 import _helpers
from google.cloud.firestore_v1.types import CommitRequest, CommitResponse, Write

from .errors import Changed, Exists, StoreError, Uncertain, Unreachable
from .store import SERVER_TIME, Fields, Snapshot, TransactionToken, Version, Work

_FAULT_OF_REQUEST = (
    api.InvalidArgument,
    api.PermissionDenied,
    api.Unauthenticated,
    api.NotFound,
    api.AlreadyExists,
    api.FailedPrecondition,
    api.OutOfRange,
    api.MethodNotImplemented,
)
"""Answers that another try does not change. They still do not prove that an earlier copy was not applied."""

COMMIT_SECONDS = 10.0
"""A transaction's commit may carry hundreds of writes."""

ROLLBACK_SECONDS = 2.0


class FirestoreStore:
    """`Store` on a `google.cloud.firestore.Client`."""

    def __init__(self, client: firestore.Client) -> None:
        self.client = client

    def create(self, path: str, fields: Fields, timeout: float) -> Version:
        try:
            return self._commit(path, fields, None, timeout)
        except api.AlreadyExists as error:
            raise Exists(path) from error
        except api.GoogleAPIError as error:
            raise _uncertain(error) from error

    def read(self, path: str, timeout: float) -> Snapshot:
        try:
            return snapshot_of(self.client.document(path).get(retry=None, timeout=timeout))
        except api.GoogleAPIError as error:
            raise unreachable(error) from error

    def replace(self, path: str, fields: Fields, version: Version, timeout: float) -> Version:
        try:
            return self._commit(path, fields, version, timeout)
        except (api.FailedPrecondition, api.NotFound) as error:
            raise Changed(path) from error
        except api.GoogleAPIError as error:
            raise _uncertain(error) from error

    def _commit(self, path: str, fields: Fields, version: Version, timeout: float) -> Version:
        """One write in one Commit: to a record that is still `version`, or absent if that is None."""
        client = self.client
        request = CommitRequest.pb()(database=client._database_string, writes=[self._write(path, fields, version)])
        answer = client._firestore_api.commit(
            CommitRequest.wrap(request), metadata=client._rpc_metadata, retry=None, timeout=timeout
        )
        return CommitResponse.pb(answer).write_results[0].update_time

    def _write(self, path: str, fields: Fields, version: Version) -> Any:
        """The protocol buffer of one write. The names of `fields` are plain identifiers."""
        write = Write.pb()()
        if version is not None:
            write.update_mask.SetInParent()  # without a mask, even an empty one, the write replaces the whole document
        write.update.name = f"{self.client._database_string}/documents/{path}"
        for name, value in fields.items():
            if value is SERVER_TIME:
                stamp = write.update_transforms.add(field_path=name)
                stamp.set_to_server_value = stamp.ServerValue.REQUEST_TIME
                continue
            if version is not None:
                write.update_mask.field_paths.append(name)
            _encode(write.update.fields[name], value)
        if version is None:
            write.current_document.exists = False
        else:
            write.current_document.update_time.CopyFrom(version)
        return write

    def transaction(self, path: str, work: Work, retry_of: TransactionToken, timeout: float) -> None:
        transaction = _Transaction(self.client, timeout)
        document = self.client.document(path)
        try:
            transaction.begin(retry_of.value)
            retry_of.value = transaction.id
            snapshot = snapshot_of(document.get(transaction=transaction, retry=None, timeout=timeout))
        except api.GoogleAPIError as error:
            transaction.roll_back()
            raise unreachable(error) from error
        try:
            fields = work(transaction, snapshot)
            if fields is None:
                transaction.roll_back()
                return
            transaction._add_write_pbs([Write.wrap(self._write(path, fields, snapshot.version))])
        except api.Aborted as error:  # contention on a read of the body's
            transaction.roll_back()
            raise _uncertain(error) from error
        except BaseException:
            transaction.roll_back()
            raise
        try:
            transaction.send()
        except api.GoogleAPIError as error:
            transaction.roll_back()  # frees its locks, and keeps a commit that is still under way from landing
            raise _uncertain(error) from error


class _Transaction(firestore.Transaction):
    """The client's transaction, with each RPC sent once; begin ends within `timeout` seconds.

    The client's own begin, commit and rollback take neither a time-out nor a retry (google-cloud-firestore 2.34), and
    would block for most of a minute where nothing answers.
    """

    def __init__(self, client: firestore.Client, timeout: float) -> None:
        super().__init__(client)
        self._once = {"metadata": client._rpc_metadata, "retry": None}
        self._timeout = timeout

    def begin(self, retry_id: bytes | None) -> None:
        request = {"database": self._client._database_string, "options": self._options_protobuf(retry_id)}
        answer = self._client._firestore_api.begin_transaction(request=request, timeout=self._timeout, **self._once)
        self._id = answer.transaction

    def send(self) -> None:
        request = {"database": self._client._database_string, "writes": self._write_pbs, "transaction": self._id}
        self._client._firestore_api.commit(request=request, timeout=COMMIT_SECONDS, **self._once)
        self._clean_up()

    def roll_back(self) -> None:
        """As far as it can be: a transaction that is not rolled back ends by itself."""
        if self._id is not None:
            request = {"database": self._client._database_string, "transaction": self._id}
            with contextlib.suppress(api.GoogleAPIError):
                self._client._firestore_api.rollback(request=request, timeout=ROLLBACK_SECONDS, **self._once)
        self._clean_up()


def _encode(target: Any, value: Any) -> None:
    """Put `value` into the protocol buffer `target`, a Value."""
    if isinstance(value, str):
        target.string_value = value
    elif isinstance(value, datetime):
        target.timestamp_value.FromDatetime(value)
    elif type(value) is int:
        target.integer_value = value
    elif isinstance(value, float):
        target.double_value = value
    else:
        target.CopyFrom(_helpers.encode_value(value)._pb)


def snapshot_of(snapshot: firestore.DocumentSnapshot[Any]) -> Snapshot:
    read_time = snapshot.read_time
    assert read_time is not None, "Firestore answers every read with its time"
    version = snapshot.update_time and snapshot.update_time.timestamp_pb()
    return Snapshot(snapshot.to_dict(), version, read_time.astimezone(UTC))


def _uncertain(error: Exception) -> StoreError:
    return Uncertain(_said(error), hopeless=isinstance(error, _FAULT_OF_REQUEST))


def unreachable(error: Exception) -> StoreError:
    return Unreachable(_said(error), hopeless=isinstance(error, _FAULT_OF_REQUEST))


def _said(error: Exception) -> str:
    """What Firestore answered, in one line."""
    return " ".join(f"Firestore: {type(error).__name__}: {error}".split())[:500]
