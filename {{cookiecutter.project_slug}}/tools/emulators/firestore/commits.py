"""What one write does: preconditions, masks and transforms, on the state that the writes before it have left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.emulators.firestore import limits, names, transforms, values
from tools.emulators.firestore.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unimplemented,
)
from tools.emulators.firestore.messages import Document, Message, WriteResult, microseconds, timestamp
from tools.emulators.firestore.storage import Found, Storage


def document_name(write: Message) -> str:
    """The full name of the document that a write is about. Raises InvalidArgument, Unimplemented."""
    match write.WhichOneof("operation"):
        case "update":
            return str(write.update.name)
        case "delete":
            return str(write.delete)
        case "transform":
            return str(write.transform.document)
        case None:
            raise InvalidArgument("A write has to update, delete or transform a document.")
        case operation:
            raise Unimplemented(f"the write {operation} is not implemented by this emulator")


@dataclass(frozen=True)
class Checked:
    """A write that can be carried out, as far as it can be known without the documents."""

    path: str
    message: Message
    transforms: Sequence[Message]
    measured: values.Measure | None
    """Of the document that is stored, if the write says all of it."""


def check(database: str, writes: Sequence[Message]) -> list[Checked]:
    """The writes of one commit. Raises InvalidArgument, Unimplemented: then nothing has happened."""
    checked = [_check_one(database, write) for write in writes]
    earlier: dict[str, list[Message]] = {}
    for write in checked:
        if write.path in earlier:
            _check_repeated(earlier[write.path], write.message)
        earlier.setdefault(write.path, []).append(write.message)
    return checked


def _check_one(database: str, write: Message) -> Checked:
    owner, path = names.split(document_name(write))
    if owner != database:
        raise InvalidArgument(f"A write to database {owner} cannot be part of a commit to {database}.")
    names.check_document(path)
    is_transform = write.WhichOneof("operation") == "transform"
    found: Sequence[Message] = write.transform.field_transforms if is_transform else write.update_transforms
    if len(found) > limits.TRANSFORMS:
        raise InvalidArgument(f"A document can have at most {limits.TRANSFORMS} transforms in a commit.")
    for transform in found:
        transforms.check(transform)
    for text in write.update_mask.field_paths:
        values.field_path(text)
    measured = None
    if write.WhichOneof("operation") == "update":
        measured = values.measure(write.update.fields)
        if not write.HasField("update_mask"):
            values.check_lengths(measured)
    is_whole = measured is not None and not found and not write.HasField("update_mask")
    return Checked(path, write, found, measured if is_whole else None)


def _check_repeated(earlier: Sequence[Message], write: Message) -> None:
    """Several writes to one document in a commit: only what Firestore can collapse into one change."""
    condition = write.current_document.WhichOneof("condition_type")
    was_deleted = earlier[-1].WhichOneof("operation") == "delete"
    if condition == "exists" and not write.current_document.exists and not was_deleted:
        raise InvalidArgument("Cannot insert an entity that an earlier write in the same request touches.")
    if was_deleted and _needs_a_document(write):
        raise InvalidArgument("Cannot delete then update an entity in the same request.")
    if condition == "update_time" and earlier[0].current_document != write.current_document:
        raise InvalidArgument("Cannot collapse mutations with different version preconditions.")


def _needs_a_document(write: Message) -> bool:
    match write.current_document.WhichOneof("condition_type"):
        case "exists":
            return bool(write.current_document.exists)
        case "update_time":
            return bool(write.WhichOneof("operation") != "delete")
        case _:
            return False


@dataclass
class _Touched:
    """A document before the commit, and its fields as the writes so far have left them (None: no document).

    `created`: the document is not the one from before, if there was one.
    """

    before: Found | None
    fields: Message | None
    created: bool


class Changes:
    """What the writes of one commit do, at its `time`: first in memory, so that only the outcome counts."""

    def __init__(self, storage: Storage, database: str, time: int) -> None:
        self._storage = storage
        self._database = database
        self._time = time
        self._touched: dict[str, _Touched] = {}

    def carry_out(self, writes: Sequence[Checked]) -> list[Message]:
        """Store the outcome of all writes; their WriteResults.

        Writes to one document have one update time, which is the one before if all in all they change nothing. Raises
        NotFound, AlreadyExists, FailedPrecondition, InvalidArgument.
        """
        results = [self._apply(write) for write in writes]
        times = {path: self._store(path, touched) for path, touched in self._touched.items()}
        for write, result in zip(writes, results, strict=True):
            if (time := times[write.path]) is not None:
                result.update_time.CopyFrom(timestamp(time))
        return results

    def _apply(self, checked: Checked) -> Message:
        path, write = checked.path, checked.message
        touched = self._touched.get(path)
        if touched is None:
            before = self._storage.read(self._database, path)
            touched = _Touched(before, None if before is None else before.document.fields, created=before is None)
            self._touched[path] = touched
        _check_precondition(write, touched)
        result = WriteResult()
        if write.WhichOneof("operation") == "delete":
            touched.fields, touched.created = None, True
            return result
        new = _changed(write, touched.fields)
        for transform in checked.transforms:
            result.transform_results.append(transforms.apply(new.fields, transform, self._time))
        values.check_document(path, checked.measured or values.measure(new.fields))
        touched.fields = new.fields
        return result

    def _store(self, path: str, touched: _Touched) -> int | None:
        """Put the document as it is now, if it has changed; its update time, None if it is deleted."""
        before = touched.before
        if touched.fields is None:
            if before is not None:
                self._storage.put(self._database, path, self._time, None)
            return None
        created = timestamp(self._time)
        if before is not None and not touched.created:
            if touched.fields == before.document.fields:
                return before.time
            created = before.document.create_time
        new = Document(
            name=names.full(self._database, path),
            fields=touched.fields,
            create_time=created,
            update_time=timestamp(self._time),
        )
        self._storage.put(self._database, path, self._time, new)
        return self._time


def _check_precondition(write: Message, touched: _Touched) -> None:
    """Existence as the writes before have left it, the update time as it was before the commit."""
    precondition = write.current_document
    version = touched.before.time if touched.before is not None else None
    name = document_name(write)
    match precondition.WhichOneof("condition_type"):
        case "exists" if precondition.exists and touched.fields is None:
            raise NotFound(f"No document to update: {name}")
        case "exists" if not precondition.exists and touched.fields is not None:
            raise AlreadyExists(f"Document already exists: {name}")
        case "update_time" if microseconds(precondition.update_time) != version:
            raise FailedPrecondition(
                f"the stored version ({version}) does not match the required base version "
                f"({microseconds(precondition.update_time)})"
            )


def _changed(write: Message, old: Message | None) -> Message:
    """The document, made from its `old` fields, before its transforms: replaced, or changed where the mask says so."""
    new = Document()
    if write.WhichOneof("operation") == "update" and not write.HasField("update_mask"):
        new.fields.MergeFrom(write.update.fields)
        return new
    if old is not None:
        new.fields.MergeFrom(old)
    for text in write.update_mask.field_paths:
        path = values.field_path(text)
        values.put(new.fields, path, values.get(write.update.fields, path))
    return new
