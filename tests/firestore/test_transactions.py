"""Transactions of the client library, against both servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import firestore as library
from google.cloud.firestore_v1 import _helpers
from google.cloud.firestore_v1.base_query import FieldFilter

from tests.support.firestore import async_client


def transact(firestore: Any, body: Callable[[Any], Any], **options: Any) -> Any:
    return library.transactional(body)(firestore.transaction(**options))


def increment(firestore: Any, document: Any, **options: Any) -> Any:
    def body(transaction: Any) -> int:
        n = (document.get(transaction=transaction).to_dict() or {"n": 0})["n"]
        transaction.set(document, {"n": n + 1})
        return int(n)

    return transact(firestore, body, **options)


def test_read_then_write(firestore: Any, document: Any) -> None:
    document.set({"n": 1})
    assert increment(firestore, document) == 1
    assert document.get().get("n") == 2


def test_two_at_once_both_apply(firestore: Any, document: Any) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: increment(firestore, document), range(2)))
    assert document.get().get("n") == 2


def test_no_update_is_lost(firestore: Any, document: Any) -> None:
    def attempt(_: int) -> bool:
        try:
            increment(firestore, document)
        except (ValueError, exceptions.Aborted):
            return False  # out of attempts
        return True

    with ThreadPoolExecutor(3) as pool:
        applied = list(pool.map(attempt, range(3)))
    assert document.get().get("n") == applied.count(True) > 0


def test_of_three_claims_one_wins(firestore: Any, document: Any) -> None:
    def claim(index: int) -> bool:
        def body(transaction: Any) -> bool:
            if document.get(transaction=transaction).exists:
                return False
            transaction.set(document, {"by": index})
            return True

        return bool(transact(firestore, body, max_attempts=10))

    with ThreadPoolExecutor(3) as pool:
        won = list(pool.map(claim, range(3)))
    assert won.count(True) == 1
    assert document.get().get("by") == won.index(True)


def test_an_exception_leaves_nothing(firestore: Any, document: Any) -> None:
    document.set({"n": 1})

    def body(transaction: Any) -> None:
        document.get(transaction=transaction)
        transaction.update(document, {"n": 2})
        raise RuntimeError

    with pytest.raises(RuntimeError):
        transact(firestore, body)
    assert document.get().get("n") == 1
    document.update({"n": 5})  # no lock is left
    assert document.get().get("n") == 5


def test_a_create_of_what_exists_fails_as_a_whole(firestore: Any, document: Any) -> None:
    document.set({"n": 1})
    other = document.parent.document("b")

    def body(transaction: Any) -> None:
        transaction.set(other, {"n": 1})
        transaction.create(document, {"n": 2})

    with pytest.raises(exceptions.AlreadyExists):
        transact(firestore, body)
    assert not other.get().exists


def test_a_stale_precondition_is_not_tried_again(firestore: Any, document: Any) -> None:
    option = firestore.write_option(last_update_time=document.set({"n": 1}).update_time)
    document.set({"n": 2})
    calls = []

    def body(transaction: Any) -> None:
        calls.append(1)
        transaction._add_write_pbs(_helpers.pbs_for_update(document._document_path, {"n": 3}, option))

    with pytest.raises(exceptions.FailedPrecondition):
        transact(firestore, body)
    assert len(calls) == 1


def _meeting(transaction_bodies: int) -> Callable[[], None]:
    """Lets the first attempts of all bodies meet, as far as the server's locks let them."""
    barrier, seen = threading.Barrier(transaction_bodies), threading.local()

    def meet() -> None:
        if not getattr(seen, "met", False):
            seen.met = True
            try:
                barrier.wait(0.3)
            except threading.BrokenBarrierError:
                return

    return meet


def test_no_write_skew(firestore: Any, collection: str) -> None:
    both = [firestore.collection(collection).document(name) for name in "ab"]
    for each in both:
        each.set({"on": True})
    meet = _meeting(2)

    def turn_off(index: int) -> None:
        def body(transaction: Any) -> None:
            states = [found.get("on") for found in transaction.get_all(both)]
            meet()
            if all(states):
                transaction.update(both[index], {"on": False})

        transact(firestore, body, max_attempts=10)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(turn_off, range(2)))
    assert sorted(each.get().get("on") for each in both) == [False, True]


def test_no_phantoms(firestore: Any, collection: str) -> None:
    found, meet = firestore.collection(collection), _meeting(2)

    def create_if_none(index: int) -> None:
        def body(transaction: Any) -> None:
            query = found.where(filter=FieldFilter("key", "==", "x"))
            existing = list(query.stream(transaction=transaction))
            meet()
            if not existing:
                transaction.create(found.document(f"d{index}"), {"key": "x"})

        transact(firestore, body, max_attempts=10)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(create_if_none, range(2)))
    assert len(list(found.stream())) == 1


def test_a_write_from_outside_is_serialized(firestore: Any, document: Any) -> None:
    document.set({"n": 0})
    outside: list[threading.Thread] = []

    def body(transaction: Any) -> None:
        n = document.get(transaction=transaction).get("n")
        if not outside:
            outside.append(threading.Thread(target=lambda: document.set({"n": 100})))
            outside[0].start()
            outside[0].join(0.3)  # where locks are, it cannot end yet
        transaction.update(document, {"n": n + 1})

    transact(firestore, body, max_attempts=10)
    outside[0].join()
    assert document.get().get("n") in (100, 101)


def test_read_only_is_a_snapshot(firestore: Any, document: Any) -> None:
    document.set({"n": 1})

    def body(transaction: Any) -> tuple[int, int]:
        before = document.get(transaction=transaction).get("n")
        document.set({"n": before + 10})
        return before, document.get(transaction=transaction).get("n")

    assert transact(firestore, body, read_only=True) == (1, 1)
    assert document.get().get("n") == 11


def test_a_query_within(firestore: Any, collection: str) -> None:
    found = firestore.collection(collection)
    for i in range(3):
        found.document(str(i)).set({"i": i})

    def body(transaction: Any) -> None:
        for each in transaction.get(found.where(filter=FieldFilter("i", "<", 2))):
            transaction.update(each.reference, {"i": 100})

    transact(firestore, body)
    assert sorted(each.get("i") for each in found.stream()) == [2, 100, 100]


@pytest.mark.parametrize("ended_by", ["commit", "rollback"])
def test_a_transaction_that_has_ended_is_refused(firestore: Any, document: Any, ended_by: str) -> None:
    """Also what a repeated Commit gets, when the answer to the first was lost: nothing is applied twice."""
    document.set({"n": 0})
    transaction = firestore.transaction()
    transaction._begin()
    identifier = transaction._id
    transaction.update(document, {"n": library.Increment(1)})
    transaction._commit() if ended_by == "commit" else transaction._rollback()
    applied = document.get().get("n")
    transaction._id = identifier
    transaction.update(document, {"n": library.Increment(1)})
    with pytest.raises(exceptions.InvalidArgument):
        transaction._commit()
    transaction._id = identifier
    transaction._rollback()
    assert document.get().get("n") == applied == (ended_by == "commit")


def test_the_async_client(firestore_host: str, collection: str) -> None:
    async def main() -> None:
        client = async_client(firestore_host)
        document = client.collection(collection).document("a")
        await document.create({"n": 0})
        with pytest.raises(exceptions.AlreadyExists):
            await document.create({"n": 1})

        @library.async_transactional
        async def body(transaction: Any) -> None:
            found = await document.get(transaction=transaction)
            transaction.update(document, {"n": found.get("n") + 1})

        await asyncio.gather(*(body(client.transaction(max_attempts=20)) for _ in range(3)))
        query = document.parent.where(filter=FieldFilter("n", "==", 3))
        assert [found.id async for found in query.stream()] == ["a"]

    asyncio.run(main())


def test_databases_and_projects_are_separate(firestore_host: str, connect: Any, collection: str) -> None:
    clients = [
        connect(firestore_host),
        connect(firestore_host, database="other-db"),
        connect(firestore_host, project="another-project"),
    ]
    for index, each in enumerate(clients):
        assert not each.collection(collection).document("k").get().exists
        each.collection(collection).document("k").create({"n": index * 10})
    increment(clients[1], clients[1].collection(collection).document("k"))
    assert [each.collection(collection).document("k").get().get("n") for each in clients] == [0, 11, 20]
