"""The store's writes, put together by hand, are what the client itself would have written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from exactly_once.errors import Changed, Exists
from exactly_once.records import Status
from exactly_once.store import SERVER_TIME, TransactionToken
from tests.runtime.bench import Bench

FIELDS: dict[str, Any] = {
    "text": "é\u2028\x00 and 𝒳",
    "empty": "",
    "status": Status.COMPLETED,
    "number": -(2**63),
    "zero": 0,
    "real": 330.0,
    "yes": True,
    "no": False,
    "nothing": None,
    "instant": datetime(2026, 1, 15, 3, 0, 0, 123456, timezone(timedelta(hours=1))),
    "list": [{"who": "ops", "when": datetime(2026, 1, 15, tzinfo=UTC), "why": None}, 1, 2.5, True],
    "map": {"a.b": {"c": []}, "`": 1},
}


def test_every_kind_of_field(bench: Bench) -> None:
    ours, theirs = f"{bench.pipeline}_ours/x", f"{bench.pipeline}_theirs/x"
    bench.store.create(ours, FIELDS, 10.0)
    bench.direct.document(theirs).create(FIELDS)
    found, expected = (bench.direct.document(path).get().to_dict() or {} for path in (ours, theirs))
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {  # True == 1 == 1.0
        name: type(value) for name, value in expected.items()
    }


def test_replace_leaves_other_fields_and_takes_no_other_version(bench: Bench) -> None:
    path = f"{bench.pipeline}_ours/x"
    first = bench.store.create(path, {"a": 1, "b": 2, "at": SERVER_TIME}, 10.0)
    with pytest.raises(Exists):
        bench.store.create(path, {"a": 9}, 10.0)
    before = bench.store.read(path, 10.0)
    assert before.version == first
    second = bench.store.replace(path, {"b": None, "c": [3]}, first, 10.0)
    with pytest.raises(Changed):
        bench.store.replace(path, {"a": 9}, first, 10.0)
    third = bench.store.replace(path, {"at": SERVER_TIME}, second, 10.0)
    after = bench.store.read(path, 10.0)
    assert after.version == third
    assert before.fields and after.fields
    assert {**after.fields, "at": None} == {"a": 1, "b": None, "c": [3], "at": None}
    assert before.fields["at"] < after.fields["at"]
    assert abs((after.fields["at"] - after.read_time).total_seconds()) < 60


def test_replace_of_nothing_and_in_a_transaction(bench: Bench) -> None:
    path = f"{bench.pipeline}_ours/x"
    gone = bench.store.create(path, {"a": 1}, 10.0)
    bench.direct.document(path).delete()
    with pytest.raises(Changed):
        bench.store.replace(path, {"a": 2}, gone, 10.0)
    bench.store.transaction(path, lambda transaction, seen: {"a": 1, "at": SERVER_TIME}, TransactionToken(), 10.0)
    bench.store.transaction(path, lambda transaction, seen: {"b": 2}, TransactionToken(), 10.0)
    found = bench.direct.document(path).get().to_dict()
    assert found and {**found, "at": None} == {"a": 1, "b": 2, "at": None}
