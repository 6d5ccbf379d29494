"""A worker of test_serializability: transactions that append their names to lists.

    python -m tests.firestore.appending ADDRESS COLLECTION WORKER THREADS TRANSACTIONS

Prints one JSON list a transaction: its name, whether it committed, the lists it appended to, and what it read of each.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.api_core import exceptions
from google.cloud import firestore as library

from tests.support.firestore import client

LISTS = 6


def main() -> None:
    address, collection, worker = sys.argv[1:4]
    threads, transactions = map(int, sys.argv[4:6])
    firestore, lock = client(address), threading.Lock()

    def run(thread: int) -> None:
        rng = random.Random(f"{worker}-{thread}")
        for number in range(transactions):
            outcome = _append(firestore, collection, f"{worker}-{thread}-{number}", rng)
            with lock:
                print(json.dumps(outcome), flush=True)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))
    firestore.close()


def _append(firestore: Any, collection: str, name: str, rng: random.Random) -> list[Any]:
    reads = rng.sample(range(LISTS), rng.randint(1, 3))
    appends = rng.sample(reads, rng.randint(1, len(reads)))
    seen: dict[int, list[str]] = {}

    @library.transactional
    def body(transaction: Any) -> None:
        seen.clear()
        for each in reads:
            document = firestore.collection(collection).document(str(each))
            seen[each] = (document.get(transaction=transaction).to_dict() or {}).get("names", [])
        for each in appends:
            document = firestore.collection(collection).document(str(each))
            transaction.set(document, {"names": [*seen[each], name]})

    try:
        body(firestore.transaction(max_attempts=10))
    except (ValueError, exceptions.Aborted):
        return [name, False, appends, seen]
    return [name, True, appends, seen]


if __name__ == "__main__":
    main()
