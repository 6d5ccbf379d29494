"""The real gcloud against the REST port; skipped where it is not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import LOCATION, Desk
from .test_executions_api import ECHO, SLEEP
from .test_workflows_api import BAD

pytestmark = pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")

WORKFLOW = f"{LOCATION}/workflows/w"

Gcloud = Callable[..., Any]


@pytest.fixture
def gcloud(desk: Desk, tmp_path: Path) -> Gcloud:
    """`gcloud workflows ARGUMENTS --format=json`; its answer, or what it says when it fails."""
    url = f"{desk.server.rest_url}/"
    settings = {
        "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
        "CLOUDSDK_CORE_PROJECT": "p",
        "CLOUDSDK_WORKFLOWS_LOCATION": "us-central1",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_WORKFLOWS": url,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_WORKFLOWEXECUTIONS": url,
    }

    def call(*arguments: str, fails: bool = False) -> Any:
        done = subprocess.run(
            ["gcloud", "workflows", *arguments, "--format=json"],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else json.loads(done.stdout or "null")

    return call


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return f"--source={path}"


def test_deploy_run_and_list(gcloud: Gcloud, tmp_path: Path) -> None:
    deployed = gcloud("deploy", "w", write(tmp_path / "w.yaml", ECHO), "--labels=a=b", "--set-env-vars=X=1")
    assert (deployed["name"], deployed["state"], deployed["userEnvVars"]) == (WORKFLOW, "ACTIVE", {"X": "1"})
    done = gcloud("run", "w", '--data={"x": 1}', "--labels=run=abc")
    assert (done["state"], json.loads(done["result"]), done["labels"]) == (
        "SUCCEEDED",
        {"x": 1},
        {"a": "b", "run": "abc"},
    )
    [listed] = gcloud("executions", "list", "w", "--filter=state=SUCCEEDED")
    assert listed["name"] == done["name"]


@pytest.mark.slow
def test_the_other_commands(gcloud: Gcloud, desk: Desk, tmp_path: Path) -> None:
    bad = gcloud("deploy", "w", write(tmp_path / "bad.yaml", BAD), fails=True)
    assert "[INVALID_ARGUMENT] main.yaml:4:" in bad
    gcloud("deploy", "w", write(tmp_path / "one.yaml", SLEEP), "--call-log-level=log-all-calls")
    again = gcloud("deploy", "w", write(tmp_path / "two.yaml", SLEEP), "--service-account=me@p.iam.gserviceaccount.com")
    assert again["revisionId"].startswith("000002-")
    assert (again["callLogLevel"], again["serviceAccount"]) == (
        "LOG_ALL_CALLS",
        "projects/p/serviceAccounts/me@p.iam.gserviceaccount.com",
    )
    assert gcloud("describe", "w") == again
    assert [item["name"] for item in gcloud("list")] == [WORKFLOW]
    with desk.clock.busy():
        started = gcloud("execute", "w", "--data=100")
        assert started["state"] == "ACTIVE"
        execution = started["name"].rpartition("/")[2]
        gcloud("executions", "cancel", execution, "--workflow=w")
        assert gcloud("executions", "describe", execution, "--workflow=w")["state"] == "CANCELLED"
        assert gcloud("executions", "wait-last")["state"] == "CANCELLED"
    assert "NOT_FOUND" in gcloud("execute", "missing", fails=True)
    gcloud("delete", "w")
    assert gcloud("list") == []
