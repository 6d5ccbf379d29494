"""GAPS_SCHEDULE: the job that looks for slots without a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.deploy.deployment import TEMPLATE, Deployment

Make = Callable[..., Deployment]

ACCOUNT = "serviceAccount:shop-gaps@shop-project.iam.gserviceaccount.com"


@pytest.fixture
def project(new: Make) -> Deployment:
    made = new(GAPS_SCHEDULE="0 8 * * *")
    made.write("tools/__init__.py", "")
    made.write("tools/requirements.txt", "click==8.5.1\n")
    made.write("pipeline", "#!/bin/sh\n")  # its check is tried elsewhere
    (made.root / "pipeline").chmod(0o755)
    return made


def change(project: Deployment, old: str, new: str) -> None:
    text = (project.root / "settings.env").read_text()
    assert old in text
    project.write("settings.env", text.replace(old, new))


def test_a_job_looks_for_gaps_and_an_alert_tells(project: Deployment) -> None:
    project.deploy()
    state = project.gcloud.state
    job = state["run_jobs"]["shop-gaps"]
    assert job["flags"]["--service-account"] == ACCOUNT.partition(":")[2]
    assert job["flags"]["--max-retries"] == "0"
    scheduler = "shop-scheduler@shop-project.iam.gserviceaccount.com"
    assert job["policy"]["bindings"] == [{"role": "roles/run.invoker", "members": [f"serviceAccount:{scheduler}"]}]
    watch = state["jobs"]["shop-gaps"]
    assert (watch["schedule"], watch["timeZone"]) == ("0 8 * * *", "Europe/Berlin")
    assert watch["httpTarget"]["uri"] == (
        "https://run.googleapis.com/v2/projects/shop-project/locations/europe-west1/jobs/shop-gaps:run"
    )
    assert watch["httpTarget"]["oauthToken"]["serviceAccountEmail"] == scheduler
    granted = {b["role"]: b.get("condition") for b in state["policy"]["bindings"] if ACCOUNT in b["members"]}
    assert sorted(granted) == ["roles/datastore.viewer", "roles/logging.viewer", "roles/workflows.viewer"]
    assert 'databases/shop"' in granted["roles/datastore.viewer"]["expression"]
    [alert] = [p["policy"] for p in state["policies"].values() if p["userLabels"]["alert"] == "gaps"]
    assert alert["conditions"][0]["conditionThreshold"]["filter"] == (
        'metric.type="run.googleapis.com/job/completed_execution_count" AND metric.labels.result="failed" '
        'AND resource.labels.job_name="shop-gaps" AND resource.type="cloud_run_job"'
    )
    assert 'resource.labels.job_id="shop-gaps"' in state["metrics"]["shop-scheduler-failed"]["filter"]


def test_unchanged_nothing_is_built_and_a_change_of_tools_or_time_is_deployed(project: Deployment) -> None:
    project.deploy()
    project.gcloud.forget()
    assert "Nothing changed" in project.deploy()
    assert project.gcloud.changes == []
    project.write("tools/__init__.py", "X = 1\n")
    project.deploy("--only", "schedule")
    change(project, "0 8 * * *", "0 9 * * *")
    project.deploy("--only", "schedule")
    assert [argv[:4] for argv in project.gcloud.changes] == [
        ["run", "jobs", "deploy", "shop-gaps"],  # the settings are in its image
        ["run", "jobs", "deploy", "shop-gaps"],
        ["scheduler", "jobs", "update", "http"],
    ]
    assert project.gcloud.state["jobs"]["shop-gaps"]["schedule"] == "0 9 * * *"


def test_a_paused_one_stays_paused(project: Deployment) -> None:
    project.deploy()
    state = project.gcloud.state
    state["jobs"]["shop-gaps"]["state"] = "PAUSED"
    state["update_resumes"] = True
    change(project, "0 8 * * *", "0 9 * * *")
    project.deploy("--only", "schedule")
    assert project.gcloud.state["jobs"]["shop-gaps"]["schedule"] == "0 9 * * *"
    assert project.gcloud.state["jobs"]["shop-gaps"]["state"] == "PAUSED"


def test_an_emptied_setting_takes_the_job_away(project: Deployment) -> None:
    project.deploy()
    change(project, "0 8 * * *", "")
    said = project.deploy()
    assert "shop-gaps@shop-project.iam.gserviceaccount.com, its roles and its alert stay until destroy" in said
    assert (list(project.gcloud.state["jobs"]), project.gcloud.state["run_jobs"]) == (["shop"], {})
    assert "Nothing changed" in project.deploy()


def test_destroy_takes_all_of_it(project: Deployment) -> None:
    project.deploy()
    change(project, "0 8 * * *", "")  # the setting is another by then: it goes all the same
    project.deploy("destroy", "--yes")
    state = project.gcloud.state
    assert [state[kind] for kind in ("jobs", "run_jobs", "accounts", "policies", "metrics")] == [{}] * 5
    assert not [b for b in state["policy"]["bindings"] if ACCOUNT in b["members"]]


@pytest.mark.parametrize("kind", ["jobs", "run_jobs"])
def test_somebody_elses_job_of_that_name_is_left_alone(project: Deployment, kind: str) -> None:
    project.deploy()
    state = project.gcloud.state
    theirs = {"state": "ENABLED", "description": "mine", "metadata": {"labels": {}}, "policy": {}}
    state[kind]["shop-gaps"] = theirs
    project.gcloud.forget()
    done = project.run()
    assert done.returncode == 1 and "shop-gaps is there already" in done.stderr
    assert project.gcloud.changes == []
    change(project, "0 8 * * *", "")
    project.deploy()
    project.deploy("destroy", "--yes")
    assert project.gcloud.state[kind] == {"shop-gaps": theirs}


def test_a_dry_run_is_a_script_that_makes_it(project: Deployment) -> None:
    said = project.run("--dry-run")
    assert said.returncode == 0 and project.gcloud.calls == []
    pasted = subprocess.run(
        ["bash", "-e"], input=said.stdout, cwd=project.root, env=project.environment(), capture_output=True, text=True
    )
    assert pasted.returncode == 0, pasted.stderr
    project.gcloud.forget()
    project.deploy()
    assert project.gcloud.changes == []


def test_without_the_setting_nothing_is_made(new: Make) -> None:
    project = new(GAPS_SCHEDULE="")
    project.deploy()
    assert not any("gaps" in " ".join(argv) for argv in project.gcloud.changes)


def test_a_step_of_the_same_name_is_refused_before_anything_is_changed(project: Deployment) -> None:
    project.step("gaps")
    done = project.run()
    assert done.returncode == 1 and "rename the step" in done.stderr
    assert project.gcloud.calls == []


def test_what_is_uploaded_runs_gaps_of_that_project(new: Make) -> None:
    project = new("charge_orders", GAPS_SCHEDULE="0 8 * * *")
    for part in ("tools", "exactly_once"):
        shutil.rmtree(project.root / part, ignore_errors=True)
        shutil.copytree(TEMPLATE / part, project.root / part, ignore=shutil.ignore_patterns("__pycache__"))
    project.write("pipeline", "#!/bin/sh\n")
    (project.root / "pipeline").chmod(0o755)
    project.step("charge_orders", "RECEIVERS=PAYMENT_URL\n")
    project.deploy("--dry-run", "--project=other-project", "--region=us-east1")
    stage = project.root / ".stage/shop-gaps"
    assert (stage / "Procfile").read_text() == "web: python -m tools gaps --cloud --env prod --since 7d\n"
    wanted = (stage / "requirements.txt").read_text()
    assert all(name in wanted for name in ("google-cloud-firestore==", "google-cloud-workflows==", "cronsim=="))
    looked = (
        "from tools.settings import load; from tools.project import ROOT; import tools.operate.gaps; "
        "made = load(ROOT, 'prod'); print(made.scope, made.pipeline, list(made.steps), ROOT)"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(project.root)}
    done = subprocess.run([sys.executable, "-c", looked], cwd=stage, env=environment, capture_output=True, text=True)
    assert done.stdout == f"other-project/us-east1/prod shop ['charge_orders'] {stage}\n", done.stderr
