"""The embedded Firestore beside Google's emulator: start-up, memory and throughput, with the real client library.

    python benchmarks/firestore.py [--rounds 3] [--seconds 2] [--default-java]

Each round measures both servers one after the other, and the median counts. Google's emulator runs with the small heap
and quick start of the tests, or as gcloud starts it with --default-java. Without it the embedded server runs alone.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "{{cookiecutter.project_slug}}")]

from tests.support.firestore import JAVA_FLAGS, client, start_embedded, start_official, why_no_official  # noqa: E402

CLIENTS = 16
DOCUMENTS = 2000
Measure = Callable[[Any, str, float], float]


def per_second(work: Callable[[], Any], seconds: float) -> float:
    count, began = 0, time.perf_counter()
    while (taken := time.perf_counter() - began) < seconds:
        work()
        count += 1
    return count / taken


def sequential_writes(firestore: Any, address: str, seconds: float) -> float:
    collection = firestore.collection(uuid.uuid4().hex)
    return per_second(lambda: collection.document().set({"n": 1, "text": "some text", "when": None}), seconds)


def writes_of_clients(firestore: Any, address: str, seconds: float) -> float:
    """CLIENTS clients, each with a connection and a thread of its own."""
    clients = [client(address) for _ in range(CLIENTS)]
    rates: list[float] = []

    def run(each: Any) -> None:
        collection = each.collection(uuid.uuid4().hex)
        rates.append(per_second(lambda: collection.document().set({"n": 1, "text": "some text"}), seconds))

    threads = [threading.Thread(target=run, args=(each,)) for each in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in clients:
        each.close()
    return sum(rates)


def transactions(firestore: Any, address: str, seconds: float) -> float:
    """Read one document, write it and another one."""
    from google.cloud import firestore as library

    collection = firestore.collection(uuid.uuid4().hex)
    counter, other = collection.document("counter"), collection.document("other")

    @library.transactional
    def body(transaction: Any) -> None:
        n = (counter.get(transaction=transaction).to_dict() or {"n": 0})["n"]
        transaction.set(counter, {"n": n + 1})
        transaction.set(other, {"n": n})

    return per_second(lambda: body(firestore.transaction()), seconds)


def _filled(firestore: Any) -> Any:
    collection = firestore.collection(uuid.uuid4().hex)
    for start in range(0, DOCUMENTS, 500):
        batch = firestore.batch()
        for number in range(start, start + 500):
            fields = {"n": number, "even": number % 2 == 0, "name": f"name {number}", "tags": ["a", "b"]}
            batch.set(collection.document(f"{number:05}"), fields)
        batch.commit()
    return collection


def whole_queries(firestore: Any, address: str, seconds: float) -> float:
    """All documents, each decoded by the client."""
    collection = _filled(firestore)
    return per_second(lambda: sum(1 for _ in collection.stream()), seconds)


def filtered_queries(firestore: Any, address: str, seconds: float) -> float:
    """The ten last even ones."""
    from google.cloud.firestore_v1.base_query import FieldFilter

    even = _filled(firestore).where(filter=FieldFilter("even", "==", True))
    query = even.order_by("n", direction="DESCENDING").limit(10)
    return per_second(lambda: list(query.stream()), seconds)


RATES: dict[str, Measure] = {
    "sequential writes, 1/s": sequential_writes,
    f"writes of {CLIENTS} clients, 1/s": writes_of_clients,
    "read-write transactions, 1/s": transactions,
    f"all of {DOCUMENTS} documents, queries/s": whole_queries,
    f"10 of {DOCUMENTS} by filter and order, 1/s": filtered_queries,
}
START = "start to the first create, s"
MEMORY = "memory after it all, MB"


def measure(start: Callable[[], tuple[subprocess.Popen[Any], str]], seconds: float) -> dict[str, float]:
    began = time.perf_counter()
    process, address = start()
    firestore = client(address)
    try:
        firestore.document("first/one").create({"n": 1})
        found = {START: time.perf_counter() - began}
        for name, rate in RATES.items():
            found[name] = rate(firestore, address, seconds)
        found[MEMORY] = _resident(process.pid)
    finally:
        firestore.close()
        process.kill()
        process.wait()
    return found


def _resident(pid: int) -> float:
    """Megabytes of memory that a process has; NaN where ps does not say."""
    if shutil.which("ps") is None:
        return float("nan")
    return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(pid)])) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--default-java", action="store_true")
    arguments = parser.parse_args()
    from google.cloud import firestore  # noqa: F401 - its import is not part of a start

    flags = () if arguments.default_java else JAVA_FLAGS
    reason = why_no_official()
    rounds: dict[str, list[dict[str, float]]] = {"embedded": [], "official": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            file = str(Path(folder) / f"{number}.db")
            rounds["embedded"].append(measure(lambda file=file: start_embedded("--file", file), arguments.seconds))  # type: ignore[misc]
            if reason is None:
                rounds["official"].append(measure(lambda: start_official(flags), arguments.seconds))
    _print(rounds, reason)


def _print(rounds: dict[str, list[dict[str, float]]], reason: str | None) -> None:
    print(f"{'':42}{'embedded':>12}{'official':>12}{'ratio':>9}")
    for name in (START, *RATES, MEMORY):
        ours, theirs = (statistics.median(r[name] for r in rounds[kind] or [{name: float("nan")}]) for kind in rounds)
        better = ours / theirs if name in RATES else theirs / ours
        print(f"{name:42}{ours:12.2f}{theirs:12.2f}{better:8.2f}x")
    if reason:
        print(f"Google's emulator: {reason}")


if __name__ == "__main__":
    main()
