"""Firestore as the tools read and write it, on the laptop and in the cloud."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from google.cloud import firestore
from google.cloud.firestore_v1 import _helpers
from google.cloud.firestore_v1.types import StructuredQuery

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
    left_out = set(omit)
    found = {
        path: cast(Fields, _helpers.decode_dict(document.fields, client))
        for path, document in _everything(client)
        if path.partition("/")[0] not in left_out
    }
    return dict(sorted(found.items()))


def clear(client: firestore.Client) -> None:
    """Delete every document of the database: for a laptop's."""
    paths = [path for path, _ in _everything(client)]
    for start in range(0, len(paths), BATCH):
        batch = client.batch()
        for path in paths[start : start + BATCH]:
            batch.delete(client.document(path))
        batch.commit()


def _everything(client: firestore.Client) -> Iterator[tuple[str, Any]]:
    """All documents at once, by a query over every collection: path, and the document as the API has it."""
    root = f"projects/{client.project}/databases/{client._database}/documents"
    query = StructuredQuery(from_=[StructuredQuery.CollectionSelector(all_descendants=True)])
    request = {"parent": root, "structured_query": query}
    for answer in client._firestore_api.run_query(request=request, metadata=client._rpc_metadata):
        if answer.document.name:
            yield answer.document.name.removeprefix(f"{root}/"), answer.document


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
