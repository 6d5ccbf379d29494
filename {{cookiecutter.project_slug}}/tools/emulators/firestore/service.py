"""The RPCs of google.firestore.v1.Firestore, each from its request message to its answer.

Answers of streaming methods are serialized here: a document goes out as the bytes that are stored.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterator
from typing import Any

from tools.emulators.firestore import commits, limits, names, values
from tools.emulators.firestore.core import Database, Reading
from tools.emulators.firestore.errors import FirestoreError, InvalidArgument, NotFound, Unimplemented
from tools.emulators.firestore.messages import (
    Document,
    Empty,
    Message,
    Status,
    Write,
    WriteResult,
    of_method,
    timestamp,
)
from tools.emulators.firestore.queries import Aggregation, Query
from tools.emulators.firestore.storage import Found

STREAMING = ("BatchGetDocuments", "RunQuery", "RunAggregationQuery")
UNARY = (
    "GetDocument",
    "ListDocuments",
    "CreateDocument",
    "UpdateDocument",
    "DeleteDocument",
    "BeginTransaction",
    "Commit",
    "Rollback",
    "BatchWrite",
    "ListCollectionIds",
)
ID_CHARACTERS = string.ascii_letters + string.digits
DOCUMENTS_PAGE = 300
COLLECTIONS_PAGE = 1000

_DOCUMENT_TAG = b"\x0a"
"""Field 1 of the streamed answers: the document, in BatchGetDocumentsResponse and RunQueryResponse alike."""


class Firestore:
    """One method an RPC, named as in the protocol. They raise FirestoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- reading

    def BatchGetDocuments(self, request: Message) -> list[bytes]:  # noqa: N802
        database = names.database_of(request.database)
        paths = []
        for name in dict.fromkeys(request.documents):
            owner, path = names.split(name)
            if owner != database:
                raise InvalidArgument(f"The document {name} is not in database {database}.")
            paths.append(names.check_document(path))
        mask = list(request.mask.field_paths) if request.HasField("mask") else None
        answer = of_method("BatchGetDocuments", "Response")
        with self._database.reading(request, database, paths) as reading:
            time = answer(read_time=timestamp(reading.time)).SerializeToString()
            answers = [answer(transaction=reading.new_id).SerializeToString()] if reading.new_id else []
            for path in paths:
                found = self._database.document(database, path, reading)
                if found is None:
                    missing = answer(missing=names.full(database, path), read_time=timestamp(reading.time))
                    answers.append(missing.SerializeToString())
                else:
                    answers.append(_with_document(found, mask) + time)
        return answers

    def GetDocument(self, request: Message) -> Message:  # noqa: N802
        database, path = names.split(request.name)
        names.check_document(path)
        with self._database.reading(request, database, [path]) as reading:
            return self._one(database, path, request, reading)

    def _one(self, database: str, path: str, request: Message, reading: Reading) -> Message:
        found = self._database.document(database, path, reading)
        if found is None:
            raise NotFound(f'Document "{names.full(database, path)}" not found.')
        return values.project(found.document, request.mask.field_paths) if request.HasField("mask") else found.document

    def RunQuery(self, request: Message) -> Iterator[bytes]:  # noqa: N802
        _refuse_explaining(request)
        database, parent = names.split(request.parent)
        query = Query(database, parent, request.structured_query)
        answer = of_method("RunQuery", "Response")
        with self._database.reading(request, database) as reading:
            results = self._database.results(query, reading)
        time = answer(read_time=timestamp(reading.time)).SerializeToString()
        if reading.new_id:
            yield answer(transaction=reading.new_id).SerializeToString()
        for found in results:
            yield _with_document(found, query.fields) + time
        if not results:
            yield time

    def RunAggregationQuery(self, request: Message) -> list[bytes]:  # noqa: N802
        _refuse_explaining(request)
        database, parent = names.split(request.parent)
        asked = request.structured_aggregation_query
        aggregation = Aggregation(asked.aggregations)
        query = Query(database, parent, asked.structured_query, aggregation.required)
        with self._database.reading(request, database) as reading:
            results = self._database.results(query, reading)
        answer = of_method("RunAggregationQuery", "Response")(
            read_time=timestamp(reading.time), transaction=reading.new_id
        )
        for alias, value in aggregation.of(results).items():
            answer.result.aggregate_fields[alias].CopyFrom(value)
        return [answer.SerializeToString()]

    def ListDocuments(self, request: Message) -> Message:  # noqa: N802
        if request.order_by:
            raise Unimplemented("ListDocuments with order_by is not implemented by this emulator")
        database, parent = names.split(request.parent)
        names.check_id(request.collection_id)
        collection = names.join(names.check_parent(parent), request.collection_id)
        with self._database.reading(request, database) as reading:
            found = {
                each.path: each.document
                for each in self._database.storage.collection(database, collection, reading.at)
                if each.path > request.page_token
            }
            if request.show_missing:
                for path in self._database.missing_parents(database, collection, reading.at):
                    if path > request.page_token and path not in found:
                        found[path] = Document(name=names.full(database, path))
        page, token = _page(sorted(found), request.page_size, DOCUMENTS_PAGE)
        documents = [found[path] for path in page]
        if request.HasField("mask"):
            documents = [values.project(document, request.mask.field_paths) for document in documents]
        return of_method("ListDocuments", "Response")(documents=documents, next_page_token=token)

    def ListCollectionIds(self, request: Message) -> Message:  # noqa: N802
        database, parent = names.split(request.parent)
        with self._database.reading(request, database) as reading:
            ids = self._database.collection_ids(database, parent, reading.at)
        page, token = _page([each for each in ids if each > request.page_token], request.page_size, COLLECTIONS_PAGE)
        return of_method("ListCollectionIds", "Response")(collection_ids=page, next_page_token=token)

    # -- writing

    def Commit(self, request: Message) -> Message:  # noqa: N802
        _check_size(request)
        database = names.database_of(request.database)
        time, results = self._database.commit(database, request.writes, request.transaction)
        return of_method("Commit", "Response")(write_results=results, commit_time=timestamp(time))

    def BatchWrite(self, request: Message) -> Message:  # noqa: N802
        """Each write is a commit of its own, with a status of its own."""
        _check_size(request)
        database = names.database_of(request.database)
        if len(request.writes) > limits.BATCH_WRITES:
            raise InvalidArgument(f"A BatchWrite can have at most {limits.BATCH_WRITES} writes.")
        touched = [commits.document_name(write) for write in request.writes]
        if len(set(touched)) < len(touched):
            raise InvalidArgument("A BatchWrite can write each document only once.")
        for write in request.writes:
            commits.check(database, [write])
        answer = of_method("BatchWrite", "Response")()
        for write in request.writes:
            try:
                _, (result,) = self._database.commit(database, [write])
                status = Status()
            except FirestoreError as error:
                result, status = WriteResult(), Status(code=error.code.value[0], message=error.message)
            answer.write_results.append(result)
            answer.status.append(status)
        return answer

    def CreateDocument(self, request: Message) -> Message:  # noqa: N802
        database, parent = names.split(request.parent)
        names.check_id(request.collection_id)
        identifier = request.document_id or "".join(secrets.choice(ID_CHARACTERS) for _ in range(20))
        path = names.join(names.join(parent, request.collection_id), identifier)
        write = Write(update=Document(name=names.full(database, path), fields=request.document.fields))
        write.current_document.exists = False
        return self._written(database, path, write, request)

    def UpdateDocument(self, request: Message) -> Message:  # noqa: N802
        database, path = names.split(request.document.name)
        write = Write(update=request.document)
        if request.HasField("update_mask"):
            write.update_mask.CopyFrom(request.update_mask)
        if request.HasField("current_document"):
            write.current_document.CopyFrom(request.current_document)
        return self._written(database, path, write, request)

    def _written(self, database: str, path: str, write: Message, request: Message) -> Message:
        _check_size(request)
        with self._database.monitor:
            self._database.commit(database, [write])
            return self._one(database, path, request, Reading(None, 0))

    def DeleteDocument(self, request: Message) -> Message:  # noqa: N802
        database, _ = names.split(request.name)
        write = Write(delete=request.name)
        if request.HasField("current_document"):
            write.current_document.CopyFrom(request.current_document)
        self._database.commit(database, [write])
        return Empty()

    # -- transactions

    def BeginTransaction(self, request: Message) -> Message:  # noqa: N802
        database = names.database_of(request.database)
        with self._database.monitor:
            transaction = self._database.begin(database, request.options)
        return of_method("BeginTransaction", "Response")(transaction=transaction.id)

    def Rollback(self, request: Message) -> Message:  # noqa: N802
        with self._database.monitor:
            self._database.transactions.discard(request.transaction)
        return Empty()


def _with_document(found: Found, fields: list[str] | None) -> bytes:
    """A streamed answer's document; what is appended to it is merged with it by whoever parses it."""
    body = found.body if fields is None else values.project(found.document, iter(fields)).SerializeToString()
    return _DOCUMENT_TAG + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """An unsigned number as protocol buffers write it, seven bits a byte."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _page(items: list[str], size: int, default: int) -> tuple[list[str], str]:
    """The first items, and the token for those after them."""
    page = items[: size or default]
    return page, page[-1] if len(page) < len(items) else ""


def _check_size(request: Message) -> None:
    if request.ByteSize() > limits.REQUEST_BYTES:
        raise InvalidArgument(f"Request payload size exceeds the limit: {limits.REQUEST_BYTES} bytes.")


def _refuse_explaining(request: Any) -> None:
    if request.HasField("explain_options"):
        raise Unimplemented("explain_options are not implemented by this emulator")
