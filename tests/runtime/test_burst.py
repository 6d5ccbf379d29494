"""200 threads in 4 processes claim one record at once: one wins, and everybody is answered without an error."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.runtime.bench import Bench

ROOT = Path(__file__).parents[2]
PROCESSES, THREADS = 4, 50


@pytest.mark.slow  # it asks for both cores: beside other tests the ten seconds would be theirs
@pytest.mark.parametrize(
    ("what", "winner", "others"), [("STEP", "done", {"busy", "replayed"}), ("RUN", "started", {"busy", "duplicate"})]
)
def test_burst(bench: Bench, what: str, winner: str, others: set[str]) -> None:
    path = f"{ROOT}:{ROOT / '{{cookiecutter.project_slug}}'}"
    command = [sys.executable, "-m", "tests.runtime.burst", bench.address, bench.pipeline, what, str(THREADS)]
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env={"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    told: Counter[str] = Counter()
    for process in processes:
        out, _ = process.communicate(timeout=60)
        told.update(json.loads(out))
    assert told[winner] == 1
    assert set(told) <= {winner, *others}
    assert told.total() == PROCESSES * THREADS
