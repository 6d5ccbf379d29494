"""How long `runs` and `show` take over a long history, beside what is wanted of them.

    python benchmarks/operate.py [--runs 2000] [--items 1000]

Each command is a process of its own, as a person starts it: imports, Firestore and Workflows on this machine, the
table printed. Every run has an execution of its own; a hundredth of them failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "{{cookiecutter.project_slug}}"
sys.path[:0] = [str(ROOT), str(PROJECT)]

import pytest  # noqa: E402

from exactly_once.identity import instant_text, run_path  # noqa: E402
from tests.operate.office import Office, open_office  # noqa: E402
from tests.support.firestore import start_embedded, start_official, why_no_official  # noqa: E402

WANTED = 2.0
"""Seconds for each command."""

SHORT = """
main:
  params: [run]
  steps:
    - judge:
        switch:
          - condition: ${run.fails}
            raise: "it fails"
    - finish:
        return: 1
"""

COMMAND = """
import json, sys
from pathlib import Path
import tools.operate.place as place
from tools.project import Running
place.ROOT = Path(sys.argv[1])
where = Running(**json.loads(sys.argv[2]))
place.running = lambda state: where
sys.argv = ["./pipeline", *sys.argv[3:]]
from tools.cli import main
main()
"""


def fill(office: Office, runs: int, items: int) -> str:
    """Runs with their executions, the latest of them with many items; its id."""
    office.workflows.deploy(office.settings.workflow_name, SHORT)
    ids = office.history(runs)
    create = office.workflows.executions.create_execution
    for start in range(0, runs, 400):
        batch = office.client.batch()
        for number in range(start, min(start + 400, runs)):
            execution = {
                "argument": json.dumps({"fails": number % 100 == 7}),
                "labels": {"run": ids[number][:63], "pipeline": office.settings.pipeline},
            }
            made = create({"parent": office.settings.workflow_name, "execution": execution})
            fields = {"execution": made["name"], "claimed_at": datetime.now(UTC)}
            batch.update(office.client.document(run_path(office.settings.pipeline, ids[number])), fields)
        batch.commit()
    office.ended(made["name"])
    steps = office.client.document(run_path(office.settings.pipeline, ids[0])).collection(
        f"{office.settings.pipeline}_steps"
    )
    for start in range(0, items, 250):
        batch = office.client.batch()
        for number in range(start, min(start + 250, items)):
            step_fields: dict[str, object] = {
                "status": "completed",
                "step": "charge",
                "item": f"order-{number:05}",
                "attempt_id": "a" * 32,
            }
            step_fields |= {"attempts": 1, "result": json.dumps({"id": number})}
            batch.set(steps.document(f"charge:{number:064x}"), {**step_fields, "claimed_at": datetime.now(UTC)})
        batch.commit()
    with office.events.open("a") as file:
        for number in range(runs * 5):
            line = {"event": "run.claimed", "run_id": ids[number % runs], "service": "proxy", "time": 1.0}
            file.write(json.dumps({**line, "message": "x" * 150}) + "\n")
    return ids[0]


def timed(office: Office, *words: str) -> float:
    """Seconds of one command, the best of three."""
    where = json.dumps(asdict(office.running()))
    command = [sys.executable, "-c", COMMAND, str(office.root), where, *words]
    best = float("inf")
    for _ in range(3):
        began = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(PROJECT)})
        best = min(best, time.monotonic() - began)
    return best


def measure(address: str, runs: int, items: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        opened = open_office(Path(folder) / "project", f"b{os.getpid()}x", address, patch)
        office = next(opened)
        last = fill(office, runs, items)
        since = instant_text(datetime(2025, 12, 31, 2, tzinfo=UTC) - timedelta(days=runs))
        found = {
            "runs": timed(office, "runs"),
            "runs --all": timed(office, "runs", "--all"),
            "runs --failed": timed(office, "runs", "--failed", "--since", since),
            "show": timed(office, "show", last),
            "show --all": timed(office, "show", last, "--all"),
        }
        next(opened, None)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--items", type=int, default=1000)
    given = parser.parse_args()
    columns: dict[str, dict[str, float]] = {}
    process, address = start_embedded()
    try:
        columns["embedded"] = measure(address, given.runs, given.items)
    finally:
        process.terminate()
        process.wait()
    if why_no_official() is None:
        official, address = start_official()
        try:
            columns["official"] = measure(address, given.runs, given.items)
        finally:
            official.kill()
            official.wait()
    print(f"{given.runs} runs, one of them with {given.items} items; wanted: {WANTED:.0f} s each")
    print(f"{'':16}" + "".join(f"{name:>12}{'of wanted':>11}" for name in columns))
    for name in columns["embedded"]:
        cells = "".join(f"{column[name]:>10.2f} s{column[name] / WANTED:>11.2f}" for column in columns.values())
        print(f"{name:16}{cells}")


if __name__ == "__main__":
    main()
