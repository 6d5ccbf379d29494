"""Projects made from the template, as a user makes them but in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cookiecutter.main import cookiecutter

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "{{cookiecutter.project_slug}}"

Bake = Callable[..., Path]


def make(room: Path, **answers: str) -> Path:
    """Bake the template into a new project below `room`; what is not answered gets its default."""
    made = cookiecutter(str(ROOT), no_input=True, default_config=True, extra_context=answers, output_dir=str(room))
    return Path(made)


@pytest.fixture
def bake(tmp_path: Path) -> Iterator[Bake]:
    """Bakes a project, `bake(schedule="*/5 * * * *")`; each call into a folder of its own."""
    count = 0

    def bake(**answers: str) -> Path:
        nonlocal count
        count += 1
        return make(tmp_path / f"baked{count}", **answers)

    yield bake


@pytest.fixture(scope="session")
def baked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that the default answers give. Shared: read it, change a `project` instead."""
    return make(tmp_path_factory.mktemp("baked"))


@pytest.fixture
def project(baked: Path, tmp_path: Path) -> Path:
    """A copy of the default project, to change at will."""
    return Path(shutil.copytree(baked, tmp_path / "project"))


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what would reach into a project's own: PYTHONPATH, emulators, pytest."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.endswith("_EMULATOR_HOST") and key not in ("PYTHONPATH", "PYTEST_ADDOPTS", "GOOGLE_CLOUD_PROJECT")
    }
    return {**kept, **more}
