"""Single writes and their preconditions, against both servers."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.firestore_v1.field_path import FieldPath


def test_create_answers_with_its_update_time(document: Any) -> None:
    written = document.create({"x": 1})
    found = document.get()
    assert found.to_dict() == {"x": 1}
    assert found.update_time == found.create_time == written.update_time


def test_create_of_what_exists(document: Any) -> None:
    document.create({"x": 1})
    with pytest.raises(exceptions.AlreadyExists):
        document.create({"x": 2})
    assert document.get().to_dict() == {"x": 1}


def test_create_after_delete_is_a_new_document(document: Any) -> None:
    document.create({"x": 1})
    before = document.get().create_time
    document.delete()
    document.create({"x": 2})
    assert document.get().create_time > before


def test_set_replaces(document: Any) -> None:
    document.set({"x": 1, "y": 2})
    document.set({"z": 3})
    assert document.get().to_dict() == {"z": 3}


def test_set_merges_deeply(document: Any) -> None:
    document.set({"a": {"b": 1, "c": 2}, "k": 1})
    document.set({"a": {"b": 9}}, merge=True)
    assert document.get().to_dict() == {"a": {"b": 9, "c": 2}, "k": 1}


def test_set_merges_listed_fields(document: Any) -> None:
    document.set({"a": 1, "b": 2})
    document.set({"a": 5, "b": {"q": 1}}, merge=["a", "b"])
    assert document.get().to_dict() == {"a": 5, "b": {"q": 1}}


def test_update_of_paths(document: Any) -> None:
    document.set({"a": {"b": 1, "c": 2}})
    document.update({"a.b": 7, "n.e.w": 1})
    assert document.get().to_dict() == {"a": {"b": 7, "c": 2}, "n": {"e": {"w": 1}}}


def test_update_of_quoted_paths(document: Any) -> None:
    document.set({"a.b": 1, "x y": 2, "back`tick\\": 0})
    document.update(
        {FieldPath("a.b").to_api_repr(): 3, "`x y`": 4, FieldPath("back`tick\\").to_api_repr(): 5, "`é`": 6}
    )
    assert document.get().to_dict() == {"a.b": 3, "x y": 4, "back`tick\\": 5, "é": 6}


def test_update_of_what_is_missing(document: Any) -> None:
    with pytest.raises(exceptions.NotFound):
        document.update({"x": 1})
    assert not document.get().exists


def test_update_with_the_update_time(firestore: Any, document: Any) -> None:
    times = [document.create({"x": 1}).update_time]
    for x in (2, 3):
        option = firestore.write_option(last_update_time=times[-1])
        times.append(document.update({"x": x}, option=option).update_time)
    assert document.get().to_dict() == {"x": 3}


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_stale_update_time_is_a_failed_precondition(firestore: Any, document: Any, operation: str) -> None:
    option = firestore.write_option(last_update_time=document.set({"x": 1}).update_time)
    document.update({"x": 2})
    with pytest.raises(exceptions.FailedPrecondition):
        document.update({"x": 3}, option=option) if operation == "update" else document.delete(option=option)
    assert document.get().to_dict() == {"x": 2}


def test_an_update_time_of_a_deleted_document(firestore: Any, document: Any) -> None:
    option = firestore.write_option(last_update_time=document.set({"x": 1}).update_time)
    document.delete()
    with pytest.raises(exceptions.FailedPrecondition):
        document.update({"x": 3}, option=option)
    assert not document.get().exists


def test_delete(firestore: Any, document: Any) -> None:
    document.delete()
    with pytest.raises(exceptions.NotFound):
        document.delete(option=firestore.write_option(exists=True))
    written = document.set({"x": 1})
    document.delete(option=firestore.write_option(last_update_time=written.update_time))
    assert not document.get().exists


def test_of_twenty_with_one_update_time_one_wins(firestore: Any, document: Any) -> None:
    option = firestore.write_option(last_update_time=document.set({"x": 0}).update_time)

    def update(x: int) -> str:
        try:
            document.update({"x": x}, option=option)
        except exceptions.FailedPrecondition:
            return "refused"
        return "done"

    with ThreadPoolExecutor(20) as pool:
        outcomes = list(pool.map(update, range(1, 21)))
    assert sorted(outcomes) == ["done", *["refused"] * 19]
    assert document.get().get("x") == outcomes.index("done") + 1


def test_of_many_creates_by_many_clients_one_wins(firestore_host: str, connect: Any, collection: str) -> None:
    clients = [connect(firestore_host) for _ in range(5)]

    def create(index: int) -> bool:
        try:
            clients[index % 5].collection(collection).document("k").create({"by": index})
        except exceptions.AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(50) as pool:
        won = list(pool.map(create, range(100)))
    assert won.count(True) == 1
    assert clients[0].collection(collection).document("k").get().get("by") == won.index(True)


def test_snapshots_carry_the_servers_times(document: Any) -> None:
    written = document.create({"x": 1})
    found = document.get()
    assert found.read_time >= found.update_time == written.update_time
    missing = document.parent.document("nope").get()
    assert missing.read_time is not None
    assert (missing.update_time, missing.create_time) == (None, None)


def test_update_times_strictly_increase(document: Any) -> None:
    times = [document.set({"x": x}).update_time for x in range(30)]
    assert all(a < b for a, b in itertools.pairwise(times))
    assert document.get().create_time == times[0]


def test_a_write_that_changes_nothing_keeps_the_update_time(document: Any) -> None:
    """As the documentation of WriteResult.update_time has it."""
    first = document.set({"x": 1}).update_time
    assert document.set({"x": 1}).update_time == first
    assert document.update({"x": 1}).update_time == first
    assert document.get().update_time == first
