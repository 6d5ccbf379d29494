"""Batches are all or nothing; the bulk writer's writes stand for themselves. Against both servers."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import firestore as library


@pytest.fixture
def found(firestore: Any, collection: str) -> Any:
    return firestore.collection(collection)


def stored(found: Any) -> dict[str, Any]:
    return {each.id: each.get("v") for each in found.stream()}


def test_all_is_applied_at_one_time(firestore: Any, found: Any) -> None:
    found.document("x").set({"v": 1})
    batch = firestore.batch()
    batch.create(found.document("a"), {"v": 1})
    batch.set(found.document("b"), {"v": 2})
    batch.update(found.document("x"), {"v": 3})
    batch.delete(found.document("z"))
    assert len(batch.commit()) == 4
    assert stored(found) == {"a": 1, "b": 2, "x": 3}
    assert len({found.document(name).get().update_time for name in "abx"}) == 1


@pytest.mark.parametrize("failure", ["create", "update", "precondition"])
def test_one_failure_leaves_nothing(firestore: Any, found: Any, failure: str) -> None:
    document = found.document("a")
    before = document.set({"v": 0}).update_time
    document.set({"v": 1})
    batch = firestore.batch()
    batch.set(found.document("b"), {"v": 2})
    expected: type[Exception] = exceptions.FailedPrecondition
    if failure == "create":
        batch.create(document, {"v": 2})
        expected = exceptions.AlreadyExists
    elif failure == "update":
        batch.update(found.document("nope"), {"v": 2})
        expected = exceptions.NotFound
    else:
        batch.update(document, {"v": 2}, option=firestore.write_option(last_update_time=before))
    with pytest.raises(expected):
        batch.commit()
    assert stored(found) == {"a": 1}


def test_writes_to_one_document_apply_in_their_order(firestore: Any, found: Any) -> None:
    document, batch = found.document("a"), firestore.batch()
    batch.create(document, {"v": 1})
    batch.update(document, {"v": library.Increment(2)})
    batch.update(document, {"m": 1})
    results = batch.commit()
    assert document.get().to_dict() == {"v": 3, "m": 1}
    assert len({result.update_time for result in results}) == 1


def test_500_writes(firestore: Any, found: Any) -> None:
    batch = firestore.batch()
    for i in range(500):
        batch.set(found.document(f"{i:04}"), {"v": i})
    assert len(batch.commit()) == 500
    assert found.count().get()[0][0].value == 500


def test_the_bulk_writer_reports_each_failure(firestore: Any, found: Any) -> None:
    found.document("a").set({"v": 0})
    failed: list[int] = []

    def note(error: Any, _: Any) -> bool:
        failed.append(error.code)
        return False  # do not try again

    writer = firestore.bulk_writer()
    writer.on_write_error(note)
    writer.create(found.document("a"), {"v": 1})
    writer.create(found.document("b"), {"v": 1})
    writer.close()
    assert stored(found) == {"a": 0, "b": 1}
    assert failed == [6]
