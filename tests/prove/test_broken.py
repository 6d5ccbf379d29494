"""prove finds real mistakes, and tells of each what it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bake import clean_environment

from .broken import BROKEN, spoil


def prove(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(PIPELINE_PYTHON=sys.executable, COLUMNS="300")
    return subprocess.run(
        [str(project / "pipeline"), "prove", *words],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_found_with_its_story(name: str, project: Path) -> None:
    broken = BROKEN[name]
    spoil(project, broken)
    only = [word for pattern in broken.cells for word in ("--only", pattern)]
    done = prove(project, *only)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT EXACTLY ONCE" in done.stdout
    assert broken.story in " ".join(done.stdout.split()), done.stdout
    assert "Traceback" not in done.stderr


def test_there_are_enough_mistakes() -> None:
    assert len(BROKEN) >= 12


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_cell_of_the_default_pipeline_is_green(project: Path, tmp_path: Path) -> None:
    page, junit = tmp_path / "proof.html", tmp_path / "proof.xml"
    environment = clean_environment(PIPELINE_PYTHON=sys.executable)
    done = subprocess.run(
        [str(project / "pipeline"), "prove", "--html", str(page), "--junit", str(junit)],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=850,
    )
    print(done.stdout[-20_000:])
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert "EXACTLY ONCE" in done.stdout
    assert "</html>" in page.read_text()
    assert 'failures="0"' in junit.read_text()
    assert not (project / ".local" / "prove").exists()
