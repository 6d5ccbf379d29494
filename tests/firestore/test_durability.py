"""kill -9 at any moment: no acknowledged commit is lost, none is half there, and the server carries on."""

from __future__ import annotations

import itertools
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions

from tests.support.firestore import client, start_embedded

WRITERS = 4


class Ledger:
    """What was tried and what was acknowledged, by name."""

    def __init__(self) -> None:
        self.tried: set[str] = set()
        self.acknowledged: dict[str, Any] = {}

    def write_until_it_breaks(self, firestore: Any, prefix: str) -> None:
        """Batches of two documents, and a counter in a transaction of its own every now and then."""
        for number in itertools.count():
            name = f"{prefix}-{number}"
            self.tried.add(name)
            batch = firestore.batch()
            batch.create(firestore.document(f"x/{name}"), {"v": name})
            batch.set(firestore.document(f"y/{name}"), {"v": name, "filling": "." * 500})
            try:
                (result, _) = batch.commit(retry=None, timeout=5)
            except (exceptions.GoogleAPICallError, exceptions.RetryError):
                return
            self.acknowledged[name] = result.update_time


def check_killed(folder: Path, kills: int, seconds: float) -> None:
    rng, ledger, file = random.Random(kills), Ledger(), str(folder / "state.db")
    for number in range(kills):
        process, address = start_embedded("--file", file)
        firestore = client(address)
        threads = [
            threading.Thread(target=ledger.write_until_it_breaks, args=(firestore, f"{number}-{writer}"))
            for writer in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.1, 1.0) * seconds)
        process.kill()
        process.wait()
        for thread in threads:
            thread.join()
        firestore.close()
    process, address = start_embedded("--file", file)
    firestore = client(address)
    found = {each.id: each for each in firestore.collection("x").stream()}
    partners = {each.id: each for each in firestore.collection("y").stream()}
    last = firestore.document("z/last").set({}).update_time
    firestore.close()
    process.terminate()
    process.wait()
    assert len(ledger.acknowledged) > kills * WRITERS
    assert {name: found[name].update_time for name in ledger.acknowledged if name in found} == ledger.acknowledged
    assert set(found) <= ledger.tried
    assert {(name, each.update_time) for name, each in found.items()} == {
        (name, each.update_time) for name, each in partners.items()
    }
    times = [each.update_time for each in found.values()]
    assert len(set(times)) == len(times)
    assert last > max(times)


def test_a_few_kills(tmp_path: Path) -> None:
    check_killed(tmp_path, kills=3, seconds=0.4)


@pytest.mark.slow
def test_many_kills(tmp_path: Path) -> None:
    check_killed(tmp_path, kills=25, seconds=1.0)
