"""A sound project on disk, to be broken in one place at a time."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tools.check.command import findings, look
from tools.check.findings import Finding, Level, Project

TEMPLATE = Path(__file__).resolve().parents[2] / "{{cookiecutter.project_slug}}"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANSWERS = {
    "project_slug": "shop",
    "gcp_project": "shop-project",
    "region": "europe-west1",
    "schedule": "0 6 * * *",
    "time_zone": "Europe/Berlin",
}


class Checked:
    """The template's example, with receivers; `edit` breaks it, `findings` says what check makes of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("functions", "workflows"):
            shutil.copytree(TEMPLATE / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        (root / "exactly_once").mkdir()
        shutil.copy(TEMPLATE / "exactly_once/requirements.txt", root / "exactly_once")
        text = re.sub(r"\{%-? .*?%\}", "", (TEMPLATE / "settings.env").read_text())
        for name, value in ANSWERS.items():
            text = text.replace(f"{{{{ cookiecutter.{name} }}}}", value)
        (root / "settings.env").write_text(text)
        self.edit("settings.env", "PAYMENT_URL=", "PAYMENT_URL=https://pay.example/v1")
        self.edit("settings.env", "WEBHOOK_URL=", "WEBHOOK_URL=https://hook.example/x")

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text()
        assert old in text, (path, old)
        file.write_text(text.replace(old, new))

    def set(self, **settings: object) -> None:
        """Change lines of settings.env."""
        for name, value in settings.items():
            text = (self.root / "settings.env").read_text()
            text, count = re.subn(rf"(?m)^{name}=.*$", f'{name}="{value}"', text)
            assert count == 1, name
            (self.root / "settings.env").write_text(text)

    def project(self) -> Project:
        return look(self.root, None)[0]

    def findings(self, cloud: Level = "error") -> list[Finding]:
        project, broken = look(self.root, None)
        return [*broken, *findings(project, cloud, NOW)]


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    return Checked(tmp_path)
