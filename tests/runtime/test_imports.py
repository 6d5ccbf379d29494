"""What the runtime imports, and what it does not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "{{cookiecutter.project_slug}}"
RUNTIME = PROJECT / "exactly_once"
ALLOWED = {"exactly_once", "google", "grpc"}
"""Itself and what its requirements.txt declares (gRPC comes with the clients), beside the standard library."""


def imported(source: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("source", sorted(RUNTIME.glob("*.py")), ids=lambda path: path.stem)
def test_runtime_imports_only_what_it_declares(source: Path) -> None:
    tops = {name.split(".")[0] for name in imported(source)} - set(sys.stdlib_module_names)
    assert tops <= ALLOWED
    if source.stem != "starting":
        assert not {name for name in imported(source) if name.startswith("google.cloud.workflows")}


def test_protocol_knows_no_firestore() -> None:
    """What a model check drives: everything but the modules that make clients."""
    script = (
        "import sys; before = set(sys.modules);"
        "import exactly_once.protocol, exactly_once.launching, exactly_once.operate, exactly_once.identity;"
        "sys.exit(any(name.startswith(('google', 'grpc')) for name in set(sys.modules) - before))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=PROJECT, check=False).returncode == 0


def test_step_does_not_import_the_workflows_client() -> None:
    script = (
        "import sys; from exactly_once import step, transactional_step, chunk_step, Run, Retry, Permanent;"
        "sys.exit(any(name.startswith('google.cloud.workflows') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=PROJECT, check=False).returncode == 0


def test_public_names() -> None:
    import exactly_once

    for name in exactly_once.__all__:
        assert getattr(exactly_once, name) is not None
    with pytest.raises(AttributeError):
        _ = exactly_once.no_such_name
