"""The first commands of the README's "Deploy", in its order, on the default project as it was made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.bake import Bake
from tests.support.gcloud import Gcloud

Run = Callable[..., subprocess.CompletedProcess[str]]


def section(project: Path) -> str:
    """The first part of the README's "Deploy"."""
    return (project / "README.md").read_text().split("\n## Deploy\n")[1].split("\n### ")[0]


def shown(project: Path) -> list[list[str]]:
    """The commands of the section, in words."""
    return [line.split("#")[0].split() for line in section(project).splitlines() if line.startswith("    ")]


@pytest.fixture
def project(bake: Bake) -> Path:
    return bake()


@pytest.fixture
def gcloud(tmp_path: Path) -> Iterator[Gcloud]:
    gcloud = Gcloud(tmp_path / "gcloud")
    yield gcloud
    gcloud.close()


@pytest.fixture
def run(project: Path, gcloud: Gcloud) -> Run:
    """Runs a command in the project, with the recording gcloud on its PATH."""
    path = f"{gcloud.bin}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(project.parent), "PIPELINE_PYTHON": sys.executable}
    return lambda command, answer="": subprocess.run(
        command, cwd=project, env=environment, input=answer, capture_output=True, text=True, timeout=100
    )


def test_the_first_commands_in_order(project: Path, gcloud: Gcloud, run: Run) -> None:
    plan, check, login, deploy, destroy = shown(project)
    assert [plan, login] == [["./deploy.sh", "--dry-run"], ["gcloud", "auth", "login"]]

    planned = run(plan)
    assert planned.returncode == 0, planned.stderr
    assert "gcloud run deploy order-settlement-charge-orders " in planned.stdout
    assert "a real deploy is refused until it is given" in planned.stderr
    assert run(deploy).returncode == 1
    assert gcloud.calls == []

    settings = project / "settings.env"
    text = re.sub("(?m)^PROJECT=.*", "PROJECT=shop-project", settings.read_text())
    for name in re.findall(r"[A-Z]+_URL", section(project)):
        text = re.sub(f"(?m)^{name}=$", f"{name}=https://{name[:3].lower()}.example", text)
    settings.write_text(text)
    checked = run(check)
    assert checked.stdout.startswith("check: nothing found"), checked.stdout + checked.stderr
    deployed = run(deploy)
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    assert "Nothing changed" in run(deploy).stdout
    destroyed = run(destroy, "order-settlement\n")
    assert destroyed.returncode == 0, destroyed.stderr
    assert gcloud.state["services"] == {}
