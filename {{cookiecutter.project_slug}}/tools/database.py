"""Firestore as the tools read and write it, on the laptop and in the cloud."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from google.cloud import firestore

Fields = dict[str, Any]

BATCH = 400
"""Documents in one commit, well below Firestore's limits of writes and bytes for rows of a file."""

_environment = threading.Lock()


@contextmanager
def connect(project: str, database: str, emulator: str | None) -> Iterator[firestore.Client]:
    """A client, closed at the end: of the emulator at host:port, or of the cloud with the caller's own credentials."""
    with _environment:  # the library takes the emulator's address from here alone
        before = os.environ.pop("FIRESTORE_EMULATOR_HOST", None)
        if emulator:
            os.environ["FIRESTORE_EMULATOR_HOST"] = emulator
        try:
            client = firestore.Client(project=project, database=database)
        finally:
            os.environ.pop("FIRESTORE_EMULATOR_HOST", None)
            if before is not None:
                os.environ["FIRESTORE_EMULATOR_HOST"] = before
    try:
        yield client
    finally:
        client.close()


def documents(client: firestore.Client, omit: Iterable[str] = ()) -> dict[str, Fields]:
    """Every document by its path, in order of paths; without the top-level collections of `omit` and all below them."""
    found: dict[str, Fields] = {}
    for collection in client.collections():
        if collection.id not in set(omit):
            _collect(collection, found)
    return dict(sorted(found.items()))


def _collect(collection: Any, found: dict[str, Fields]) -> None:
    for reference in collection.list_documents():  # those that only have something below them too
        snapshot = reference.get()
        if snapshot.exists:
            found[reference.path] = snapshot.to_dict()
        for below in reference.collections():
            _collect(below, found)


def add_missing(client: firestore.Client, wanted: Mapping[str, Fields]) -> int:
    """Create the documents that are not there; one that is stays as it is. How many were created."""
    created = 0
    paths = list(wanted)
    for start in range(0, len(paths), BATCH):
        references = [client.document(path) for path in paths[start : start + BATCH]]
        there = {snapshot.reference.path for snapshot in client.get_all(references) if snapshot.exists}
        batch = client.batch()
        for reference in references:
            if reference.path not in there:
                batch.create(reference, wanted[reference.path])
        created += len(batch)
        batch.commit()
    return created
