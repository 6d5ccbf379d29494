"""How many protected calls a second: compare-and-set, and the two transactions that Firestore's documentation suggests.

    python benchmarks/protocol.py [--host HOST:PORT] [--seconds 0.25] [--threads 8] [--rounds 40]

A protected call is a claim, an empty body and a completion of a record of its own. The two-transaction protocol reads
the record and writes the claim in one transaction, and reads it again and writes the completion in another, with the
client's own decorator. The bare floor is two commits without any protocol. They take short turns in one process, so
what slows the machine slows each; the ratios are what counts. Without --host Google's emulator is started (gcloud's
copy, with Java).
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "{{cookiecutter.project_slug}}")]

from google.cloud import firestore  # noqa: E402

from exactly_once.contract import StepRequest  # noqa: E402
from exactly_once.encoding import digest  # noqa: E402
from exactly_once.external import External  # noqa: E402
from exactly_once.firestore import FirestoreStore  # noqa: E402
from exactly_once.identity import manual_run, step_path  # noqa: E402
from exactly_once.log import Log  # noqa: E402
from exactly_once.runtime import Runtime  # noqa: E402
from exactly_once.settings import StepSettings  # noqa: E402
from exactly_once.store import Host  # noqa: E402
from tests.runtime.bench import client_at  # noqa: E402
from tests.support.firestore import start_official  # noqa: E402

Call = Callable[[str], None]

RUN = manual_run("bench", "s", uuid.uuid4().hex)

FIELDS = {
    "status": "in_progress",
    "attempt_id": uuid.uuid4().hex,
    "attempts": 1,
    "lease_seconds": 330.0,
    "step": "charge",
    "item": uuid.uuid4().hex,
    "input_digest": digest(None),
    "expire_at": datetime.now(UTC) + timedelta(days=90),
}
"""The record is the same in each protocol, and lies at the same depth."""

FINISH = {"status": "completed", "result": '"done"', "error": None, "expire_at": FIELDS["expire_at"]}


def ours(client: firestore.Client) -> Call:
    """The runtime's external step, without HTTP and without writing its log."""
    settings = StepSettings("bench", "test-project", "(default)", timedelta(days=90), "charge", 300, 330, 10)
    log = Log(lambda line: None)
    runtime = Runtime(settings, FirestoreStore(client), Host(), log)
    step = External(lambda run, payload: "done", "retry")
    empty = digest(None)

    def call(key: str) -> None:
        step.handle(runtime, StepRequest(RUN, "charge", key, None, empty), log)

    return call


def two_transactions(client: firestore.Client) -> Call:
    """Claim in a transaction, finish in a transaction."""

    @firestore.transactional
    def claim(transaction: firestore.Transaction, document: Any, attempt: str) -> None:
        assert not document.get(transaction=transaction).exists
        transaction.set(document, {**FIELDS, "attempt_id": attempt, "claimed_at": firestore.SERVER_TIMESTAMP})

    @firestore.transactional
    def finish(transaction: firestore.Transaction, document: Any, attempt: str) -> None:
        assert document.get(transaction=transaction).get("attempt_id") == attempt
        transaction.update(document, FINISH)

    def call(key: str) -> None:
        document = client.document(step_path("two", RUN.run_id, "charge", key))
        attempt = uuid.uuid4().hex
        claim(client.transaction(), document, attempt)
        finish(client.transaction(), document, attempt)

    return call


def two_commits(client: firestore.Client) -> Call:
    """The floor: what any protocol of two writes costs."""

    def call(key: str) -> None:
        document = client.document(step_path("bare", RUN.run_id, "charge", key))
        written = document.create({**FIELDS, "claimed_at": firestore.SERVER_TIMESTAMP}, retry=None)
        document.update(FINISH, option=client.write_option(last_update_time=written.update_time), retry=None)

    return call


def work(call: Call, threads: int, seconds: float) -> tuple[int, float]:
    """How many calls `threads` threads made, each on a record of its own, and the seconds that it took."""
    counts = [0] * threads
    began = time.monotonic()

    def loop(index: int) -> None:
        while time.monotonic() < began + seconds:
            call(uuid.uuid4().hex)
            counts[index] += 1

    working = [threading.Thread(target=loop, args=(index,)) for index in range(threads)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    return sum(counts), time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", help="of a Firestore emulator; default: start Google's")
    parser.add_argument("--seconds", type=float, default=0.25, help="of each turn")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    process = None
    host = options.host
    if host is None:
        process, host = start_official()
    try:
        measure(host, options.threads, options.seconds, options.rounds)
    finally:
        if process is not None:
            process.kill()
            process.wait()


def measure(host: str, threads: int, seconds: float, rounds: int) -> None:
    client, channel = client_at(host)
    calls = {
        "exactly_once": ours(client),
        "two transactions": two_transactions(client),
        "two bare commits": two_commits(client),
    }
    for call in calls.values():
        work(call, threads, 2.0)  # warm
    made = dict.fromkeys(calls, 0)
    took = dict.fromkeys(calls, 0.0)
    for _ in range(rounds):
        for name, call in calls.items():
            count, elapsed = work(call, threads, seconds)
            made[name] += count
            took[name] += elapsed
    channel.close()
    rates = {name: made[name] / took[name] for name in calls}
    print(f"{threads} threads, {rounds} turns of {seconds:g} s each")
    for name, found in rates.items():
        print(f"{name:18} {found:8.0f} calls/s   {found / rates['two transactions']:5.2f} x two transactions")


if __name__ == "__main__":
    main()
