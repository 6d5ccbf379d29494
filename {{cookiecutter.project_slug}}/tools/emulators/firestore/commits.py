"""What one write does: preconditions, masks and transforms, on the state that the writes before it have left."""

from __future__ import annotations

from collections.abc import Sequence

from tools.emulators.firestore import limits, names, transforms, values
from tools.emulators.firestore.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unimplemented,
)
from tools.emulators.firestore.messages import Document, Message, WriteResult, microseconds, timestamp
from tools.emulators.firestore.storage import Storage


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


def check(database: str, writes: Sequence[Message]) -> list[str]:
    """The paths that the writes of one commit touch, each valid. Raises InvalidArgument, Unimplemented."""
    paths = []
    earlier: dict[str, Message] = {}
    for write in writes:
        owner, path = names.split(document_name(write))
        if owner != database:
            raise InvalidArgument(f"A write to database {owner} cannot be part of a commit to {database}.")
        names.check_document(path)
        if path in earlier:
            _check_repeated(earlier[path], write)
        earlier[path] = write
        paths.append(path)
    return paths


def _check_repeated(previous: Message, write: Message) -> None:
    """Several writes to one document in a commit: only what Firestore can collapse into one change."""
    condition = write.current_document.WhichOneof("condition_type")
    was_deleted = previous.WhichOneof("operation") == "delete"
    if condition == "exists" and not write.current_document.exists and not was_deleted:
        raise InvalidArgument("Cannot insert an entity that an earlier write in the same request touches.")
    if condition == "exists" and write.current_document.exists and was_deleted:
        raise InvalidArgument("Cannot delete then update an entity in the same request.")
    if condition == "update_time" and previous.current_document != write.current_document:
        raise InvalidArgument("Cannot collapse mutations with different version preconditions.")


def apply(
    storage: Storage, database: str, path: str, write: Message, time: int, base: dict[str, int | None]
) -> Message:
    """Carry out one write within `storage.commit()`, at the commit's `time`; its WriteResult.

    `base` keeps, over the writes of one commit, the update time that each document had before it: that is what an
    update-time precondition is about. Raises NotFound, AlreadyExists, FailedPrecondition, InvalidArgument.
    """
    found = storage.read(database, path)
    old = found.document if found is not None else None
    version = base.setdefault(path, found.time if found is not None else None)
    _check_precondition(write, old, version)
    result = WriteResult()
    if write.WhichOneof("operation") == "delete":
        if old is not None:
            storage.put(database, path, time, None)
        return result
    new = _changed(write, old)
    for transform in _transforms(write):
        result.transform_results.append(transforms.apply(new.fields, transform, time))
    values.check_document(path, new.fields)
    if old is not None and new.fields == old.fields:
        result.update_time.CopyFrom(old.update_time)
        return result
    new.name = names.full(database, path)
    new.create_time.CopyFrom(old.create_time if old is not None else timestamp(time))
    new.update_time.CopyFrom(timestamp(time))
    storage.put(database, path, time, new)
    result.update_time.CopyFrom(timestamp(time))
    return result


def _check_precondition(write: Message, old: Message | None, version: int | None) -> None:
    precondition = write.current_document
    name = document_name(write)
    match precondition.WhichOneof("condition_type"):
        case "exists" if precondition.exists and old is None:
            raise NotFound(f"No document to update: {name}")
        case "exists" if not precondition.exists and old is not None:
            raise AlreadyExists(f"Document already exists: {name}")
        case "update_time" if microseconds(precondition.update_time) != version:
            raise FailedPrecondition(
                f"the stored version ({version}) does not match the required base version "
                f"({microseconds(precondition.update_time)})"
            )


def _changed(write: Message, old: Message | None) -> Message:
    """The document before its transforms: replaced, or changed where the mask says so."""
    new = Document()
    if write.WhichOneof("operation") == "update" and not write.HasField("update_mask"):
        new.fields.MergeFrom(write.update.fields)
        return new
    if old is not None:
        new.fields.MergeFrom(old.fields)
    for text in write.update_mask.field_paths:
        path = values.field_path(text)
        values.put(new.fields, path, values.get(write.update.fields, path))
    return new


def _transforms(write: Message) -> Sequence[Message]:
    is_transform = write.WhichOneof("operation") == "transform"
    found: Sequence[Message] = write.transform.field_transforms if is_transform else write.update_transforms
    if len(found) > limits.TRANSFORMS:
        raise InvalidArgument(f"A document can have at most {limits.TRANSFORMS} transforms in a commit.")
    return found
