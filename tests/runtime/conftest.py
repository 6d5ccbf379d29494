from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.bench import Bench

_warmed: set[str] = set()


def warm(bench: Bench) -> None:
    """A server's first calls may take longer than the runtime waits for one."""
    if bench.address not in _warmed:
        document = bench.direct.document(f"{bench.pipeline}_warm/up")
        document.set({"n": 1})
        transaction = bench.direct.transaction()
        transaction._begin()
        document.get(transaction=transaction)
        transaction.set(document, {"n": 2})
        transaction._commit()
        _warmed.add(bench.address)


@pytest.fixture
def bench(firestore_host: str, collection: str) -> Iterator[Bench]:
    """A pipeline of its own, on each server in turn."""
    made = Bench(collection, firestore_host)
    made.start()
    warm(made)
    yield made
    made.stop()
