"""A small project on disk and its deploy.sh, run against the recording gcloud."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.gcloud import Gcloud

TEMPLATE = Path(__file__).resolve().parents[2] / "{{cookiecutter.project_slug}}"

SETTINGS = """\
PIPELINE=shop
PROJECT=shop-project
REGION=europe-west1
SCHEDULE="0 3 * * *"
TIME_ZONE=Europe/Berlin
RETENTION_DAYS=90
PAYMENT_URL="https://pay.example/v1?a=b&c=d"
GREETING="say \\"hi, you\\" for \\$5"
"""

WORKFLOW = "main:\n  params: [run]\n  steps:\n    - done:\n        return: ok\n"


class Deployment:
    """A project without tools/, so that deploy.sh stands alone; `gcloud` is what it meets on its PATH."""

    def __init__(self, folder: Path, steps: tuple[str, ...] = ("charge_orders",), **settings: str) -> None:
        self.root = folder / "project"
        self.root.mkdir(parents=True)
        self.gcloud = Gcloud(folder / "gcloud")
        self.output = ""
        shutil.copy(TEMPLATE / "deploy.sh", self.root)
        if (TEMPLATE / "deploy").is_dir():
            shutil.copytree(TEMPLATE / "deploy", self.root / "deploy")
        self.write("settings.env", SETTINGS + "".join(f'{name}="{value}"\n' for name, value in settings.items()))
        self.write("workflows/main.yaml", WORKFLOW)
        self.write("exactly_once/__init__.py", "X = 1\n")
        self.write(
            "exactly_once/requirements.txt", "# pinned\nfunctions-framework==3.10.2\ngoogle-cloud-firestore==2.34.1\n"
        )
        self.write("exactly_once/__pycache__/__init__.cpython-311.pyc", "stale")
        self.write("proxy/main.py", "def main(request): ...\n")
        self.write("proxy/requirements.txt", "google-cloud-workflows==1.24.0\n")
        for step in steps:
            self.step(step)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def step(self, name: str, settings: str = "") -> None:
        self.write(f"functions/{name}/main.py", "def main(request): ...\n")
        self.write(f"functions/{name}/step.env", settings)

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.gcloud.bin}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.root), "TMPDIR": str(self.root.parent), **more}

    def run(self, *arguments: str, answer: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """deploy.sh from another folder, as a person might start it."""
        return subprocess.run(
            [str(self.root / "deploy.sh"), *arguments],
            cwd=self.root.parent,
            env=self.environment(**environment),
            input=answer,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def deploy(self, *arguments: str) -> str:
        """A run that has to succeed; what it printed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr
