"""Queries, aggregations and listings, against both servers."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from google.cloud import firestore as library
from google.cloud.firestore_v1.base_query import And, FieldFilter, Or


@pytest.fixture
def seeded(firestore: Any, collection: str) -> Any:
    """Ten documents, d0 to d9."""
    found = firestore.collection(collection)
    batch = firestore.batch()
    for i in range(10):
        fields = {"i": i, "even": i % 2 == 0, "tag": [f"t{i % 3}", "all"], "m": {"x": i * 10}}
        batch.set(found.document(f"d{i}"), fields | ({"opt": i} if i < 4 else {}))
    batch.commit()
    return found


def ids(query: Any) -> str:
    """The digits of the ids, in their order."""
    return "".join(found.id[1:] for found in query.stream())


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("even", "==", True)], "02468"),
        ([("m.x", "==", 30)], "3"),
        ([("i", "<", 3)], "012"),
        ([("i", ">=", 2), ("i", "<=", 4.0)], "234"),
        ([("i", "in", [7, 1])], "17"),
        ([("opt", "!=", 1)], "023"),
        ([("opt", "not-in", [0, 1])], "23"),
        ([("tag", "array_contains", "t1")], "147"),
        ([("tag", "array_contains_any", ["t1", "t2"])], "124578"),
        ([("i", "==", 99)], ""),
        ([("i", ">", "text")], ""),
    ],
)
def test_filters(seeded: Any, filters: list[tuple[str, str, Any]], expected: str) -> None:
    query = seeded
    for each in filters:
        query = query.where(filter=FieldFilter(*each))
    assert ids(query) == expected


def test_null_and_nan(firestore: Any, collection: str) -> None:
    found = firestore.collection(collection)
    for name, value in (("d1", None), ("d2", math.nan), ("d3", 1)):
        found.document(name).set({"v": value})
    found.document("d4").set({})
    filters = {"1": ("==", None), "2": ("==", math.nan), "3": ("<", 5), "23": ("!=", None)}
    for expected, (operator, value) in filters.items():
        assert ids(found.where(filter=FieldFilter("v", operator, value))) == expected


def test_and_or(seeded: Any) -> None:
    late_even = And([FieldFilter("even", "==", True), FieldFilter("i", ">", 6)])
    assert ids(seeded.where(filter=Or([FieldFilter("i", "==", 1), late_even]))) == "18"


def test_orders_and_limits(seeded: Any) -> None:
    latest = seeded.order_by("i", direction="DESCENDING").limit(3)
    assert ids(latest) == "987"
    assert ids(latest.start_after({"i": 7})) == "654"
    assert ids(latest.start_after(seeded.document("d7").get())) == "654"
    assert ids(seeded.order_by("i").start_at({"i": 3}).end_before({"i": 6})) == "345"
    assert ids(seeded.order_by("i").offset(8)) == "89"
    assert ids(seeded.order_by("even").order_by("i", direction="DESCENDING").limit(2)) == "97"
    assert [found.id for found in seeded.order_by("i").limit_to_last(2).get()] == ["d8", "d9"]
    assert ids(seeded.order_by("opt", direction="DESCENDING")) == "3210"


def test_the_order_of_types(firestore: Any, collection: str) -> None:
    found = firestore.collection(collection)
    values: list[Any] = [None, False, True, -1.5, 2, 2.5, datetime(2020, 1, 1, tzinfo=UTC), "", "Z", "a", "é", "\uffee"]
    values += ["\U0001f600", b"", b"\x01", found.document("x"), library.GeoPoint(0, 1), [], [1], [1, 0]]
    values += [{}, {"a": 1}, {"a": 1, "b": 0}, {"b": 0}]
    batch = firestore.batch()
    for position in sorted(range(len(values)), key=lambda position: position * 7 % 24):
        batch.set(found.document(f"d{position:02}"), {"v": values[position]})
    batch.commit()
    assert [each.id for each in found.order_by("v").stream()] == [f"d{i:02}" for i in range(len(values))]


def test_by_document_id(seeded: Any) -> None:
    assert ids(seeded.where(filter=FieldFilter("__name__", ">=", seeded.document("d7")))) == "789"


def test_projection(seeded: Any) -> None:
    (found,) = seeded.where(filter=FieldFilter("i", "==", 4)).select(["m.x"]).stream()
    assert found.to_dict() == {"m": {"x": 40}}
    assert seeded.document("d2").get(field_paths=["i", "m.x"]).to_dict() == {"i": 2, "m": {"x": 20}}


def test_aggregations(seeded: Any) -> None:
    late = seeded.where(filter=FieldFilter("i", ">", 6))
    results = late.sum("i", alias="s").avg("i", alias="a").count(alias="c").get()[0]
    assert {each.alias: each.value for each in results} == {"s": 24, "a": 8.0, "c": 3}
    assert seeded.count().get()[0][0].value == 10
    with_optional = seeded.count(alias="c").sum("opt", alias="s").get()[0]
    assert {each.alias: each.value for each in with_optional} == {"c": 4, "s": 6}


def test_nothing_found(firestore: Any, collection: str) -> None:
    found = firestore.collection(collection)
    assert list(found.stream()) == []
    assert found.count().get()[0][0].value == 0


def test_get_all(firestore: Any, seeded: Any) -> None:
    found = firestore.get_all([seeded.document("d1"), seeded.document("zz"), seeded.document("d0")])
    assert {each.id: each.exists for each in found} == {"d1": True, "zz": False, "d0": True}


def test_subcollections_and_groups(firestore: Any, collection: str) -> None:
    found, group = firestore.collection(collection), f"g{collection}"
    found.document("p").set({"v": 0})
    for parent, name, value in (("p", group, 1), ("p", "other", 1), ("q", group, 2)):
        found.document(parent).collection(name).document(f"d{value}").set({"v": value})
    assert sorted(each.id for each in found.document("p").collections()) == sorted([group, "other"])
    paths = [each.reference.path for each in firestore.collection_group(group).stream()]
    assert paths == [f"{collection}/p/{group}/d1", f"{collection}/q/{group}/d2"]
    assert ids(firestore.collection_group(group).where(filter=FieldFilter("v", ">", 1))) == "2"
    assert [each.id for each in found.stream()] == ["p"]
    assert sorted(each.id for each in found.list_documents(page_size=1)) == ["p", "q"]
    assert collection in [each.id for each in firestore.collections()]
    firestore.recursive_delete(found)
    assert list(found.list_documents()) == []


def test_a_read_in_the_past(document: Any) -> None:
    document.set({"n": 1})
    then = document.get().read_time
    document.set({"n": 2})
    document.delete()
    assert document.get(read_time=then).get("n") == 1
    assert [each.get("n") for each in document.parent.stream(read_time=then)] == [1]
