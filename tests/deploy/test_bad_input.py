"""Whatever a person gets wrong: one clear line, and nothing is changed where that can be known."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.deployment import TEMPLATE, Deployment

Make = Callable[..., Deployment]


def refused(project: Deployment, *arguments: str, changes: int = 0) -> str:
    """The last line that deploy.sh says before it gives up."""
    done = project.run(*arguments)
    assert done.returncode == 1, done.stdout
    assert len(project.gcloud.changes) == changes
    return done.stderr.strip().splitlines()[-1]


def test_no_gcloud(new: Make) -> None:
    project = new()
    (project.gcloud.bin / "gcloud").unlink()
    tools = project.root.parent / "tools"
    tools.mkdir()
    needed = "bash env dirname mktemp mkfifo tr rm sed grep cut sha256sum awk cat cp find mkdir sort wc head tee"
    for name in needed.split():
        (tools / name).symlink_to(str(shutil.which(name)))
    done = project.run(PATH=str(tools))
    assert (done.returncode, done.stdout) == (1, "")
    assert "gcloud is not on PATH" in done.stderr.splitlines()[-1]


LOGIN = """\
{}
Please run:

  $ gcloud auth login

to obtain new credentials.
"""
NO_LOGIN = (
    "ERROR: (gcloud.projects.describe) You do not currently have an active account selected.",
    "ERROR: (gcloud.projects.describe) There was a problem refreshing your current auth tokens: invalid_grant",
)


@pytest.mark.parametrize("why", NO_LOGIN)
@pytest.mark.parametrize("arguments", [(), ("--skip=foundation",), ("destroy", "--yes")])
def test_no_login_is_asked_once_and_said_in_one_line(new: Make, why: str, arguments: tuple[str, ...]) -> None:
    project = new()
    project.gcloud.plan({"match": ".", "stderr": LOGIN.format(why), "times": 99})
    done = project.run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = (line for line in done.stderr.splitlines() if line != "check skipped: there is no tools/")
    assert "not logged in, or its login has expired: run  gcloud auth login" in line
    assert len(project.gcloud.calls) == 1


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "a login that ends in between": (
        {"match": "workflows describe", "stderr": LOGIN.format(NO_LOGIN[1])},
        "not logged in: run  gcloud auth login",
    ),
    "no permission on the project": (
        {"match": "^projects describe", "stderr": "ERROR: PERMISSION_DENIED: no"},
        "your account lacks a role",
    ),
    "typo": (
        {"match": "projects describe", "stderr": "ERROR: NOT_FOUND: The project does not exist"},
        "there is no project 'shop-project'",
    ),
    "no permission": ({"match": "workflows describe", "stderr": "ERROR: PERMISSION_DENIED: no"}, "failed: workflow"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_gcloud_says_first(new: Make, name: str) -> None:
    failure, expected = FAILURES[name]
    project = new()
    project.gcloud.plan(failure)
    done = project.run()
    assert done.returncode == 1
    assert project.gcloud.changes == []
    assert expected in done.stderr


def change(project: Deployment, **more: Any) -> None:
    project.gcloud.state = {**project.gcloud.state, **more}


def test_no_billing(new: Make) -> None:
    project = new()
    change(project, billing=False)
    assert "has no billing" in refused(project)


def test_an_api_that_only_foundation_may_enable(new: Make) -> None:
    project = new()
    line = refused(project, "--skip=foundation")
    assert "run.googleapis.com" in line
    assert "./deploy.sh --only foundation" in line


TAKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "the service shop-proxy": (
        "services",
        {"shop-proxy": {"metadata": {"name": "shop-proxy", "labels": {}}, "status": {}}},
    ),
    "the service shop-charge-orders": (
        "services",
        {
            "x": {
                "metadata": {"name": "shop-charge-orders", "labels": {"exactly_once": "shop", "environment": "test"}},
                "status": {},
            }
        },
    ),
    "the workflow shop": ("workflows", {"shop": {"labels": {"exactly_once": "other", "environment": "prod"}}}),
    "the Scheduler job shop": ("jobs", {"shop": {"state": "ENABLED", "description": "nightly"}}),
    "the account shop-build@": (
        "accounts",
        {"a": {"email": "shop-build@shop-project.iam.gserviceaccount.com", "description": "CI"}},
    ),
}


@pytest.mark.parametrize("what", TAKEN)
def test_a_name_that_somebody_else_has(new: Make, what: str) -> None:
    project = new()
    kind, resources = TAKEN[what]
    change(project, **{kind: resources}, apis=["run.googleapis.com"])
    line = refused(project)
    assert what in line
    assert "choose another PIPELINE" in line


def test_a_database_of_the_other_kind(new: Make) -> None:
    project = new()
    change(project, databases={"shop": {"locationId": "europe-west1", "type": "DATASTORE_MODE"}})
    assert "not in native mode" in refused(project)


def test_a_secret_that_is_not_there(new: Make) -> None:
    project = new()
    project.step("charge_orders", 'SECRETS="KEY=pay-key:1"\n')
    assert "gcloud secrets create pay-key" in refused(project)


def test_the_quota_of_accounts(new: Make) -> None:
    project = new()
    others = {f"a{n}": {"email": f"a{n}@x", "description": ""} for n in range(97)}
    change(project, accounts=others)
    done = project.run("--only", "foundation")
    assert done.returncode == 1
    assert "makes 102 service accounts" in done.stderr  # known before anything is changed, but a quota can be raised
    assert "STEP_ACCOUNTS=shared" in done.stderr
    assert project.gcloud.sleeps == []


SETTINGS = {
    "PROJECT=Shop": "PROJECT is 'Shop'",
    "REGION=europe": "REGION is 'europe'",
    "PIPELINE = shop": "settings.env:9: write KEY=VALUE",
    "X=a b": "settings.env:9: X: put the value in double quotes",
    'X="$(touch stolen)"': "settings.env:9: X: put the value in double quotes",
    'X="a`touch stolen`"': "settings.env:9",
    "X=a;touch stolen": "settings.env:9",
    "X=\ta": "settings.env:9: X has a control character",
    "STEP_ACCOUNTS=some": "write each or shared",
}


@pytest.mark.parametrize("line", SETTINGS)
def test_settings_are_read_and_never_run(new: Make, line: str) -> None:
    project = new()
    text = (project.root / "settings.env").read_text()
    project.write("settings.env", f"{text}{line}\n")
    assert SETTINGS[line] in refused(project)
    assert not list(project.root.rglob("stolen"))
    assert project.gcloud.calls == []


STEP_SETTINGS = {
    'SECRETS="KEY=pay-key:latest"': "with a number",
    "RECEIVERS=WEBHOOK_URL": "no URL for WEBHOOK_URL (step charge_orders writes to it): give it; nothing was changed",
}


@pytest.mark.parametrize("line", STEP_SETTINGS)
def test_step_settings(new: Make, line: str) -> None:
    project = new()
    project.step("charge_orders", line + "\n")
    assert STEP_SETTINGS[line] in refused(project)
    assert project.gcloud.calls == []


def test_a_dry_run_shows_the_plan_of_a_project_that_lacks_receivers_and_says_so(new: Make) -> None:
    project = new("charge_orders", "publish_report", PAYMENT_URL="")
    project.step("charge_orders", "RECEIVERS=PAYMENT_URL\n")
    project.step("publish_report", "RECEIVERS=WEBHOOK_URL\n")
    done = project.run("--dry-run")
    assert done.returncode == 0
    assert "gcloud run deploy shop-publish-report " in done.stdout
    assert done.stderr.splitlines()[0] == (
        "deploy.sh: warning: settings.env: no URL for PAYMENT_URL (step charge_orders writes to it), "
        "WEBHOOK_URL (step publish_report writes to it): a real deploy is refused until it is given"
    )
    line = refused(project)
    assert "PAYMENT_URL" in line
    assert "WEBHOOK_URL" in line
    assert project.gcloud.calls == []


def test_what_is_there_can_be_destroyed_without_receivers(new: Make) -> None:
    project = new()
    project.step("charge_orders", "RECEIVERS=WEBHOOK_URL\n")
    assert project.run("destroy", "--yes").returncode == 0


OPTIONS = {
    ("--only", "reserve"): "no part is called 'reserve'; there are: foundation proxy workflow schedule charge_orders",
    ("--env", "test"): "settings.test.env: not found",
    ("--wrong",): "unknown option --wrong",
    ("--project",): "--project needs a value",
}


@pytest.mark.parametrize("arguments", OPTIONS)
def test_options(new: Make, arguments: tuple[str, ...]) -> None:
    project = new()
    assert OPTIONS[arguments] in refused(project, *arguments)
    assert project.gcloud.calls == []


def test_an_environment_lies_over_the_settings(new: Make) -> None:
    project = new()
    project.write("settings.test.env", "PIPELINE=shop-test\nPROJECT=other-project\n")
    said = project.run("--env=test", "--dry-run", "--only", "proxy", "--region", "us-east1").stdout
    assert "gcloud run deploy shop-test-proxy --project=other-project --region=us-east1" in said
    assert "SCOPE=other-project/us-east1/test" in said


def test_check_runs_first_and_its_errors_stop_everything(new: Make) -> None:
    project = new()
    project.write("tools/__init__.py", "")
    project.write("pipeline", '#!/bin/sh\necho "$@" >asked\nexit 1\n')
    (project.root / "pipeline").chmod(0o755)
    assert "check found errors; nothing was changed" in refused(project)
    assert (project.root / "asked").read_text() == "check --deploy --env prod\n"
    assert project.gcloud.calls == []
    assert "check found errors" in refused(project, "--dry-run")
    assert (project.root / "asked").read_text() == "check --env prod\n"  # what is still to be set is a warning there


def test_scripts_are_clean_and_keep_to_old_bash() -> None:
    shellcheck = subprocess.run(
        [str(Path(sys.executable).with_name("shellcheck")), "-x", "deploy.sh"],
        cwd=TEMPLATE,
        capture_output=True,
        text=True,
    )
    assert shellcheck.returncode == 0, shellcheck.stdout
    newer = (
        r"declare -A|local -[An]|mapfile|readarray|wait -n|\|&|&>>|coproc|BASHPID|EPOCH(SEC|REAL)|\[\[ -v"
        r"|\$\{[a-z_A-Z]+(,|\^|@)"
    )
    found = subprocess.run(
        ["grep", "-nE", newer, "deploy.sh", "-r", "deploy"], cwd=TEMPLATE, capture_output=True, text=True
    )
    assert "".join(line for line in found.stdout.splitlines(True) if ":#" not in line) == ""
