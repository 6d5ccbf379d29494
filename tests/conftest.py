"""Fixtures shared by the areas: every module of tests/support is a plugin."""

from __future__ import annotations

from pathlib import Path

pytest_plugins = [
    f"tests.support.{module.stem}"
    for module in sorted((Path(__file__).parent / "support").glob("*.py"))
    if module.stem != "__init__"
]
