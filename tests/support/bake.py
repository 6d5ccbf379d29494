"""Projects made from the template, as a user makes them but in this process."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cookiecutter.main import cookiecutter

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "{{cookiecutter.project_slug}}"

Bake = Callable[..., Path]


def make(template: Path, room: Path, **answers: str) -> Path:
    """Bake `template` into a new project below `room`; what is not answered gets its default."""
    made = cookiecutter(str(template), no_input=True, default_config=True, extra_context=answers, output_dir=str(room))
    return Path(made)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template as git would give it: other tests write caches into the tree while this one is baked."""
    copy = tmp_path_factory.mktemp("template")
    left_out = shutil.ignore_patterns("__pycache__", ".*_cache", ".venv", ".local", ".stage")
    shutil.copy(ROOT / "cookiecutter.json", copy)
    for name in ("hooks", TEMPLATE.name):
        shutil.copytree(ROOT / name, copy / name, ignore=left_out)
    return copy


@pytest.fixture
def bake(template: Path, tmp_path: Path) -> Bake:
    """Bakes a project, `bake(schedule="*/5 * * * *")`; each call into a folder of its own."""
    rooms = (tmp_path / f"baked{number}" for number in itertools.count(1))
    return lambda **answers: make(template, next(rooms), **answers)


@pytest.fixture(scope="session")
def baked(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that the default answers give. Shared: read it, change a `project` instead."""
    return make(template, tmp_path_factory.mktemp("baked"))


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
