"""How long a deploy takes beside the sum of its commands, if each took one second.

    python benchmarks/deploy.py [--steps 10] [--second 0.25]

Each command of the recording gcloud takes `--second` of real time; what deploy.sh itself needs is measured with
commands that take none, and taken off, so that a short `--second` gives the ratio of a full one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from tests.deploy.deployment import Deployment  # noqa: E402


def measure(steps: int, second: float) -> tuple[float, int, float, int]:
    """Seconds and commands of a first deploy, then of a second one that changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        project = Deployment(Path(folder), tuple(f"step_{number:02}" for number in range(steps)))
        project.gcloud.plan(delay=second)
        results: list[float] = []
        for _ in range(2):
            project.gcloud.forget()
            began = time.monotonic()
            project.deploy()
            results += [time.monotonic() - began, len(project.gcloud.calls)]
        project.gcloud.close()
    first, commands, again, reads = results
    return first, int(commands), again, int(reads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--second", type=float, default=0.25, help="real seconds that stand for one")
    given = parser.parse_args()
    empty = measure(given.steps, 0.0)
    full = measure(given.steps, given.second)
    print(f"{'':24}{'commands':>10}{'sum':>8}{'deploy':>8}{'ratio':>8}   (each command 1 s, {given.steps} steps)")
    for name, at in (("first deploy", 0), ("second, nothing to do", 2)):
        commands = int(full[at + 1])
        taken = max(0.0, full[at] - empty[at]) / given.second
        print(f"{name:24}{commands:>10}{commands:>7} s{taken:>6.1f} s{taken / commands:>8.2f}")
    print(f"deploy.sh itself: {empty[0]:.1f} s and {empty[2]:.1f} s of this machine")


if __name__ == "__main__":
    main()
