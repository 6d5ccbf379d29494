"""A client of each server in turn, and of an embedded server of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.firestore import start_embedded


@pytest.fixture
def firestore(firestore_host: str, connect: Any) -> Any:
    """google-cloud-firestore's client, once for each server."""
    return connect(firestore_host)


@pytest.fixture
def document(firestore: Any, collection: str) -> Any:
    """A document that does not exist yet."""
    return firestore.collection(collection).document("a")


@pytest.fixture
def own_server() -> Iterator[Callable[..., str]]:
    """Starts an embedded server with these arguments; its address."""
    processes = []

    def start(*arguments: str) -> str:
        process, address = start_embedded(*arguments)
        processes.append(process)
        return address

    yield start
    for process in processes:
        process.kill()
        process.wait()
