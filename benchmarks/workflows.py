"""How fast the Workflows engine is: python benchmarks/workflows.py

Prints what was measured beside what is wanted, and the ratio of the two (below 1 is good). The engine runs in this
process, on the system's clock; the HTTP calls of the last line are answered by a thread that sleeps.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "{{cookiecutter.project_slug}}"))

from tools.emulators.clock import SystemClock
from tools.emulators.workflows import engine
from tools.emulators.workflows.definition import load
from tools.emulators.workflows.runtime import Request, Response

LOOP = """
- init:
    assign: [{n: 0}]
- loop:
    for:
      value: v
      range: [1, 99997]
      steps:
        - add:
            assign: [{n: "${n + v}"}]
- done:
    return: ${n}
"""
SHORT = """
main:
  params: [input]
  steps:
    - init:
        assign:
          - total: 0
          - name: ${default(map.get(input, "name"), "nobody")}
    - loop:
        for:
          value: v
          in: [1, 2, 3]
          steps:
            - add:
                call: plus
                args:
                  a: ${total}
                  b: ${v}
                result: total
    - check:
        switch:
          - condition: ${total == 6}
            return: ${"hello " + name}
plus:
  params: [a, b]
  steps:
    - give:
        return: ${a + b}
"""
FAN_OUT = """
- fan:
    parallel:
      for:
        value: v
        range: [1, 20]
        steps:
          - get:
              call: http.get
              args: {url: "https://a.example"}
"""


class Slow:
    """Answers after a tenth of a second, and remembers how many calls there were at once."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def request(self, request: Request) -> Response:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.1)
        with self._lock:
            self._now -= 1
        return Response(200, {}, b"")


def timed(work: Callable[[], object]) -> float:
    """The best of three, in seconds."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def run(source: str, transport: Slow) -> engine.Outcome:
    outcome = engine.execute(load(source), None, engine.World(SystemClock(), transport), env={})
    assert outcome.state == "SUCCEEDED", outcome.error
    return outcome


def thousand(transport: Slow) -> None:
    """A thousand executions in eight threads, each deployed once before."""
    definition = load(SHORT)

    def one(number: int) -> str:
        world = engine.World(SystemClock(), transport)
        return str(engine.execute(definition, {"name": str(number)}, world, env={}).result)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(1000))) == [f"hello {number}" for number in range(1000)]


def main() -> None:
    transport = Slow()
    rows = [
        ("100,000 steps in a loop", timed(lambda: run(LOOP, transport)), 4.0),
        ("1,000 short executions", timed(lambda: thousand(transport)), 5.0),
        ("20 branches of 0.1 s each", timed(lambda: run(FAN_OUT, transport)), 0.2),
    ]
    print(f"{'':28}{'measured':>10}{'wanted':>10}{'ratio':>8}")
    for name, seconds, wanted in rows:
        print(f"{name:28}{seconds:>8.3f} s{wanted:>8.1f} s{seconds / wanted:>8.3f}")
    print(f"HTTP calls of one execution at once: {transport.most} of 20")


if __name__ == "__main__":
    main()
