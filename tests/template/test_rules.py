"""The rules that keep the parts apart, held on the template as it stands."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bake import TEMPLATE
from tests.template.test_baking import RENDERED, files

RUNTIME = {"google", "grpc"}
"""What `exactly_once` may import beside the standard library: its declared requirements, and what those bring."""


def modules(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (TEMPLATE / folder).rglob("*.py"))


def name(file: Path) -> str:
    return file.relative_to(TEMPLATE).as_posix()


def imported(file: Path) -> Iterator[str]:
    """The full names of what `file` imports, also within functions; a relative import as from its package."""
    package = file.relative_to(TEMPLATE).parent.parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{stem}.{name.name}" for name in node.names)


def roots(file: Path) -> set[str]:
    return {full.split(".")[0] for full in imported(file)}


@pytest.mark.parametrize("file", modules("tools/emulators"), ids=name)
def test_emulators_run_the_pipeline_and_import_nothing_of_it(file: Path) -> None:
    assert roots(file) & {"exactly_once", "proxy", "functions", "data", "tests"} == set()


@pytest.mark.parametrize("file", modules("exactly_once"), ids=name)
def test_the_runtime_imports_its_own_requirements_alone(file: Path) -> None:
    assert roots(file) - set(sys.stdlib_module_names) - {"exactly_once"} - RUNTIME == set()


def test_one_module_of_the_runtime_knows_the_workflows_client() -> None:
    users = [f.name for f in modules("exactly_once") if any("workflows" in full.split(".") for full in imported(f))]
    assert users == ["starting.py"]


@pytest.mark.parametrize("file", modules("proxy", "functions"), ids=name)
def test_what_is_deployed_imports_no_tools(file: Path) -> None:
    assert roots(file) & {"tools", "tests", "data", "proxy", "functions"} == set()


def test_the_import_check_sees_imports() -> None:
    """The rules above would hold for ever if `imported` saw nothing."""
    names = {name for file in modules("proxy", "functions", "exactly_once") for name in imported(file)}
    assert any(name.startswith("exactly_once.") for name in names)
    assert any(name.startswith("google.cloud") for name in names)
    assert any(name.startswith("exactly_once.errors") for name in imported(TEMPLATE / "exactly_once" / "__init__.py"))


def test_jinja_is_in_the_rendered_files_alone() -> None:
    marked = re.compile(r"\{\{-?\s*cookiecutter|\{%")
    found = {
        name
        for name in files(TEMPLATE)
        if not name.endswith((".pyc", ".png", ".ico"))
        and marked.search((TEMPLATE / name).read_text(encoding="utf-8", errors="replace"))
    }
    assert found == RENDERED


@pytest.mark.parametrize("hook", ["pre_gen_project.py", "post_gen_project.py"])
def test_hooks_need_the_standard_library_alone(hook: str) -> None:
    tree = ast.parse((TEMPLATE.parent / "hooks" / hook).read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert names
    assert {full.split(".")[0] for full in names} - set(sys.stdlib_module_names) == set()
