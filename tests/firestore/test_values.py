"""Values and transforms as the client library sees them, against both servers."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from google.api_core import exceptions
from google.api_core.datetime_helpers import DatetimeWithNanoseconds
from google.cloud import firestore as library
from google.cloud.firestore_v1 import _helpers


def test_every_type_comes_back(document: Any) -> None:
    values = {
        "null": None,
        "booleans": [True, False],
        "integers": [0, -(2**63), 2**63 - 1],
        "doubles": [1.0, 1e300, math.inf, -math.inf],
        "strings": ["", "åß\u0000\U0001f600"],
        "bytes": [b"", b"\x00\xff"],
        "empty": {"array": [], "map": {}},
        "time": datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC),
        "before 1970": datetime(1969, 1, 1, tzinfo=UTC),
        "place": library.GeoPoint(1.5, -2.25),
        "reference": document,
    }
    document.set(values)
    found = document.get().to_dict()
    assert found == values
    assert [type(each) for each in found["doubles"]] == [float] * 4
    assert [type(each) for each in found["booleans"]] == [bool] * 2
    document.set({"nan": math.nan})
    assert math.isnan(document.get().get("nan"))


def test_timestamps_are_cut_to_microseconds(document: Any) -> None:
    document.set({"t": DatetimeWithNanoseconds(2024, 1, 1, nanosecond=123456789, tzinfo=UTC)})
    assert document.get().get("t") == datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize("fields", [{"a": [[1]]}, {"__x__": 1}, {"m": {"__x__": 1}}])
def test_malformed_fields_are_refused(document: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        document.set(fields)
    assert not document.get().exists


def test_server_timestamp(document: Any) -> None:
    """One time for all fields, with milliseconds, not after the commit."""
    written = document.create({"t": library.SERVER_TIMESTAMP, "n": {"u": library.SERVER_TIMESTAMP}})
    found = document.get().to_dict()
    assert found["t"] == found["n"]["u"] <= written.update_time
    assert found["t"].microsecond % 1000 == 0


def test_increment(document: Any) -> None:
    document.set({"i": 1, "s": "x", "f": 1.5, "top": 2**63 - 2, "bottom": -(2**63) + 1})
    increments = {"i": 2, "f": 1, "new": 5, "s": 3, "top": 10, "bottom": -10}
    written = document.update({name: library.Increment(by) for name, by in increments.items()})
    found = document.get().to_dict()
    assert found == {"i": 3, "f": 2.5, "new": 5, "s": 3, "top": 2**63 - 1, "bottom": -(2**63)}
    assert type(found["i"]) is int
    assert type(found["f"]) is float
    results = [_helpers.decode_value(value, document._client) for value in written.transform_results]
    assert sorted(results, key=repr) == sorted((found[name] for name in increments), key=repr)


def test_a_hundred_concurrent_increments_all_count(document: Any) -> None:
    document.set({"n": 0})
    with ThreadPoolExecutor(25) as pool:
        list(pool.map(lambda _: document.update({"n": library.Increment(1)}), range(100)))
    assert document.get().get("n") == 100


def test_maximum_and_minimum(document: Any) -> None:
    document.set({"a": 5, "b": 5, "c": 5})
    document.update(
        {"a": library.Maximum(9), "b": library.Minimum(2), "c": library.Maximum(5.0), "new": library.Maximum(1)}
    )
    assert document.get().to_dict() == {"a": 9, "b": 2, "c": 5, "new": 1}
    assert type(document.get().get("c")) is int


def test_array_union_and_remove(document: Any) -> None:
    document.set({"l": [1, 2, {"k": 1}], "s": 5})
    document.update(
        {
            "l": library.ArrayUnion([2, 2.0, 3, {"k": 1}]),
            "new": library.ArrayUnion(["a", "a"]),
            "s": library.ArrayUnion([1]),
        }
    )
    assert document.get().to_dict() == {"l": [1, 2, {"k": 1}, 3], "new": ["a"], "s": [1]}
    document.update({"l": library.ArrayRemove([1, {"k": 1}]), "none": library.ArrayRemove([1])})
    assert document.get().to_dict() == {"l": [2, 3], "new": ["a"], "s": [1], "none": []}


def test_deleted_fields(document: Any) -> None:
    document.set({"a": 1, "b": {"c": 1, "d": 2}, "e": 3})
    document.update({"a": library.DELETE_FIELD, "b.c": library.DELETE_FIELD})
    assert document.get().to_dict() == {"b": {"d": 2}, "e": 3}
    document.set({"e": library.DELETE_FIELD}, merge=True)
    assert document.get().to_dict() == {"b": {"d": 2}}
