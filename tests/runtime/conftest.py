from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.bench import Bench

ON_BOTH = {"unavailable before", "unavailable after", "aborted after", "deadline after", "dropped after", "lands late"}
"""The faults that every run tries on both servers; the others look alike to a server, and its emulation is slower."""

MUCH_ALIKE = {"test_settle_otherwise", "test_failure_of_a_transactional_step", "test_answer_that_is_lost"}
"""Tests of the same code with another status to write."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "tests/runtime/" not in item.nodeid or "firestore_kind" not in params:
            continue
        official = params["firestore_kind"] == "official"
        rare = "fault" in params and str(params["fault"]) not in ON_BOTH
        again = item.nodeid.split("::")[1].split("[")[0] in MUCH_ALIKE
        long = "test_processes" in item.nodeid
        if (rare and (official or again)) or (official and (long or ("fault" in params and again))):
            item.add_marker(pytest.mark.slow)


_warmed: set[str] = set()


def warm(bench: Bench) -> None:
    """A server's first calls, and a connection on a busy machine, may take longer than the runtime waits for one."""
    if bench.address not in _warmed:
        document = bench.direct.document(f"{bench.pipeline}_warm/up")
        document.set({"n": 1})
        transaction = bench.direct.transaction()
        transaction._begin()
        document.get(transaction=transaction)
        transaction.set(document, {"n": 2})
        transaction._commit()
        _warmed.add(bench.address)
    bench.client.document(f"{bench.pipeline}_warm/up").get(timeout=60.0)  # connects
    bench.rpcs.clear()
    bench.plan.clear()


@pytest.fixture
def bench(firestore_host: str, collection: str) -> Iterator[Bench]:
    """A pipeline of its own, on each server in turn."""
    made = Bench(collection, firestore_host)
    made.start()
    warm(made)
    yield made
    made.stop()
