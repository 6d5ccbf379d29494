"""`cruft update`: a project with steps of its own gets what the template has learned since."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bake import clean_environment

FIXED = "exactly_once/errors.py"
BIN = Path(sys.executable).parent


def run(folder: Path, *command: str) -> str:
    identity = {f"GIT_{who}_{what}": "x@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = clean_environment(
        PATH=f"{BIN}:{os.environ['PATH']}",
        HOME=str(folder.parent),
        GIT_CONFIG_GLOBAL=os.devnull,
        PIPELINE_PYTHON=sys.executable,
        **identity,
    )
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def commit(folder: Path, message: str) -> str:
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-qm", message)
    return run(folder, "git", "rev-parse", "HEAD").strip()


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not {".git", "__pycache__"} & set(path.parts))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


@pytest.fixture
def repository(template: Path, tmp_path: Path) -> Path:
    """The template under git: as it is, and before that with a fault in the runtime."""
    copy = tmp_path / "template"
    run(tmp_path, "cp", "-a", str(template), str(copy))
    runtime = copy / "{{cookiecutter.project_slug}}" / FIXED
    right = runtime.read_text()
    runtime.write_text(right + "\n\nFAULT = True\n")
    run(copy, "git", "init", "-q", "-b", "main")
    commit(copy, "with a fault")
    run(copy, "git", "tag", "old")
    runtime.write_text(right)
    commit(copy, "without it")
    return copy


@pytest.mark.slow
def test_a_fix_reaches_a_project_with_steps_and_settings_of_its_own(repository: Path, tmp_path: Path) -> None:
    run(tmp_path, "cruft", "create", "-y", "--checkout", "old", "--output-dir", str(tmp_path / "made"), str(repository))
    (project,) = (tmp_path / "made").iterdir()
    assert "FAULT" in (project / FIXED).read_text()
    run(project, "git", "init", "-q", "-b", "main")
    for name, template in (("archive", "storage"), ("notify", "http"), ("chunks", "fan_out")):
        run(project, "./pipeline", "add-step", name, "--template", template, "--after", "reserve_stock")
    run(project, "./pipeline", "remove-step", "charge_orders")
    settings = project / "settings.env"
    settings.write_text(settings.read_text().replace("MAX_RETRY_ATTEMPTS=5", "MAX_RETRY_ATTEMPTS=4") + "# ours\n")
    (project / "functions" / "notify" / "main.py").write_text("# all our own now\n")
    commit(project, "ours")
    before = contents(project)

    said = run(project, "cruft", "update", "-y", "--checkout", "main")

    assert "conflict" not in said.lower()
    assert "FAULT" not in (project / FIXED).read_text()
    assert changed(before, contents(project)) == {FIXED, ".cruft.json"}
    run(project, "cruft", "check", "--checkout", "main")
