"""One process of a burst: `python -m tests.runtime.burst ADDRESS PIPELINE STEP|RUN THREADS`.

Prints "ready", waits for a line, lets all threads go at once, and prints what they were told, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from datetime import timedelta

from exactly_once.external import External
from exactly_once.firestore import FirestoreStore
from exactly_once.identity import manual_run
from exactly_once.launching import Launcher
from exactly_once.log import Log
from exactly_once.protocol import Protocol
from exactly_once.store import Host
from tests.runtime.bench import SCOPE, Bench, client_at


class Starter:
    """Counts what this process starts."""

    def __init__(self) -> None:
        self.started = 0

    def find(self, run: object) -> str | None:
        return None

    def start(self, run: object) -> str:
        self.started += 1
        return f"execution {self.started}"


def main(address: str, pipeline: str, what: str, threads: int) -> None:
    bench = Bench(pipeline, address, host=Host())
    bench.client, _ = client_at(address)
    bench.store = FirestoreStore(bench.client)
    starter = Starter()
    launcher = Launcher(pipeline, Protocol(bench.store, Host()), starter, 120, timedelta(days=90))
    run = manual_run(pipeline, SCOPE, "burst")
    told: list[str] = []
    go = threading.Barrier(threads + 1)

    def step() -> str:
        answer = bench.call(External(lambda run, payload: "done", "hold"))
        return answer.code or ("replayed" if answer.replayed else "done")

    def deliver() -> str:
        try:
            return "started" if launcher.deliver(run, Log(lambda line: None)).by_us else "duplicate"
        except Exception as error:
            return str(getattr(error, "code", repr(error)))

    def one() -> None:
        go.wait()
        told.append(step() if what == "STEP" else deliver())

    working = [threading.Thread(target=one) for _ in range(threads)]
    for thread in working:
        thread.start()
    print("ready", flush=True)
    sys.stdin.readline()
    go.wait()
    for thread in working:
        thread.join()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
