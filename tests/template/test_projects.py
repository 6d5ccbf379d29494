"""The tests of generated projects pass, as they come and after a step has been taken out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.support.bake import Bake, clean_environment


def run_tests(project: Path) -> str:
    """The project's own test command; its output."""
    environment = clean_environment(PIPELINE_PYTHON=sys.executable)
    done = subprocess.run(
        ["./pipeline", "test", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_with_the_example_orders(project: Path) -> None:
    output = run_tests(project)
    assert "passed" in output
    assert "skipped" not in output


def test_with_no_example(bake: Bake) -> None:
    assert "passed" in run_tests(bake(example="none"))


def test_after_a_step_has_been_deleted(project: Path) -> None:
    shutil.rmtree(project / "functions" / "charge_orders")
    delete_step(project / "workflows" / "main.yaml", "charge_orders")
    assert "skipped" in run_tests(project)


def delete_step(workflow: Path, name: str) -> None:
    """Take the step's lines out of `main`, as a user does in an editor."""
    lines = workflow.read_text(encoding="utf-8").splitlines(keepends=True)
    start = lines.index(f"    - {name}:\n")
    end = next(at for at in range(start + 1, len(lines)) if lines[at].startswith("    - "))
    workflow.write_text("".join(lines[:start] + lines[end:]), encoding="utf-8")
    steps = yaml.safe_load("".join(lines[:start] + lines[end:]))["main"]["steps"]
    assert [next(iter(step)) for step in steps] == ["reserve_stock", "publish_report", "finish"]
