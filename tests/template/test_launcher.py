"""./pipeline: the command sets itself up, and says what it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bake import clean_environment


def run(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["./pipeline", *arguments],
        cwd=project,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_given_python_is_used_as_it_is(project: Path) -> None:
    done = run(project, "--help", PIPELINE_PYTHON=sys.executable)
    assert done.returncode == 0
    assert "Usage: ./pipeline" in done.stdout
    assert not (project / ".venv").exists()


def test_it_runs_from_any_folder(project: Path, tmp_path: Path) -> None:
    environment = clean_environment(PIPELINE_PYTHON=sys.executable)
    command = [str(project / "pipeline"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "Usage: ./pipeline" in done.stdout


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with what the launcher calls, and an old Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "dirname", "cat", "env", "rm"):
        found = next(Path(part) / name for part in os.environ["PATH"].split(":") if (Path(part) / name).exists())
        (folder / name).symlink_to(found)
    old = folder / "python3"
    old.write_text("#!/bin/bash\nexit 1\n")
    old.chmod(0o755)
    return folder


def test_without_a_python_that_is_new_enough_it_says_so(project: Path, bare_path: Path) -> None:
    done = run(project, "--help", PATH=str(bare_path))
    assert done.returncode == 1
    assert "pipeline: needs Python 3.11 or newer on PATH" in done.stderr
    assert not (project / ".venv").exists()


@pytest.mark.slow
def test_requirements_that_cannot_be_installed_are_tried_again(project: Path, tmp_path: Path) -> None:
    """A set-up that failed half-way is not taken for done."""
    empty = tmp_path / "index"
    empty.mkdir()
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(empty)}
    for _ in range(2):
        done = run(project, "--help", **nothing)
        assert done.returncode == 1
        assert "pipeline: the requirements could not be installed" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_call_sets_up_and_the_second_does_not(project: Path) -> None:
    first = run(project, "--help")
    assert first.returncode == 0, first.stderr
    assert "setting up .venv" in first.stderr
    assert run(project, "--help").stderr == ""
    extra = project / "functions" / "charge_orders" / "requirements.txt"
    extra.write_text(extra.read_text() + "# changed\n")
    assert "setting up .venv" in run(project, "--help").stderr
