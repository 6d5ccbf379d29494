"""Parallel parts, Ctrl-C, --dry-run and destroy."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.deploy.conftest import twin
from tests.deploy.deployment import Deployment
from tests.deploy.test_again import without_order
from tests.support.gcloud import Gcloud

Make = Callable[..., Deployment]


def test_parts_run_side_by_side_and_bindings_one_after_the_other(first: Deployment, tmp_path: Path) -> None:
    project = twin(first, tmp_path)
    project.gcloud.state = {**project.gcloud.state, "services": {}, "policy": {"bindings": []}}
    project.gcloud.plan(delay=0.3)
    project.deploy()
    calls = project.gcloud.calls

    def overlaps(words: str) -> int:
        spans = sorted((c["began"], c["ended"]) for c in calls if " ".join(c["argv"]).startswith(words))
        assert len(spans) > 1
        return sum(later[0] < earlier[1] for earlier, later in pairwise(spans))

    assert overlaps("run deploy") > 0
    assert overlaps("projects add-iam-policy-binding") == 0
    assert all(call["code"] == 0 for call in calls if call["changes"])  # looking for what is not there may fail


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_deploy_leaves_no_child(deployed: Deployment, gcloud: Gcloud, sent: signal.Signals) -> None:
    deployed.write("exactly_once/__init__.py", "X = 9\n")
    gcloud.plan(delay=30)
    process = subprocess.Popen(
        [str(deployed.root / "deploy.sh"), "--skip=foundation"],
        env=deployed.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while gcloud.begun == 0:
        time.sleep(0.02)
    process.send_signal(sent)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "deploy.sh: stopped. Start the same command again" in stderr
    assert left_over(str(gcloud.bin)) == []
    assert not list(deployed.root.parent.glob("deploy.*"))  # its temporary folder is gone too


def left_over(words: str) -> list[str]:
    """Processes whose command line has `words` in it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            zombie = ") Z " in (folder / "stat").read_text()
        except OSError:
            continue
        if words in line and not zombie and int(folder.name) != os.getpid():
            found.append(line)
    return found


def test_a_dry_run_needs_nothing_and_its_output_is_a_script_that_deploys(new: Make, tmp_path: Path) -> None:
    project = new()
    done = project.run("--dry-run")
    assert done.returncode == 0, done.stderr
    assert project.gcloud.calls == []
    assert "@" not in done.stdout.replace("@shop-project.iam", "").replace("~~", "")
    pasted = subprocess.run(
        ["bash", "-e"], input=done.stdout, cwd=project.root, env=project.environment(), capture_output=True, text=True
    )
    assert pasted.returncode == 0, pasted.stderr
    project.gcloud.forget()
    project.deploy()
    assert project.gcloud.changes == []  # it made what a deploy makes
    assert sorted(project.gcloud.state["services"]) == ["shop-charge-orders", "shop-proxy"]


def test_a_name_too_long_for_a_url_known_before(new: Make) -> None:
    step = "a" * 31
    project = new(step, PIPELINE="shop-of-many-things1", DATABASE="shop")
    said = project.run("--dry-run", "--only=workflow").stdout
    assert f"$(gcloud run services describe shop-of-many-things1-{step} " in said
    project.deploy()
    url = f"https://shop-of-many-things1-{step}-hash.a.run.app"
    assert project.gcloud.state["workflows"]["shop-of-many-things1"]["env"] == {"STEP_URLS": f'{{"{step}":"{url}"}}'}
    ids = [email.partition("@")[0] for email in project.gcloud.state["accounts"]]
    assert max(map(len, ids)) <= 30
    assert len(set(ids)) == 5


def test_only_a_step(deployed: Deployment, gcloud: Gcloud) -> None:
    deployed.write("exactly_once/__init__.py", "X = 4\n")
    deployed.deploy("--only", "reserve_stock", "--only", "proxy")
    assert sorted(argv[2] for argv in gcloud.changes) == ["shop-proxy", "shop-reserve-stock"]
    assert not any(argv[0] == "iam" for argv in (call["argv"] for call in gcloud.calls))  # CI may not even look there


def test_one_account_for_all_steps(new: Make) -> None:
    project = new("charge_orders", "reserve_stock", STEP_ACCOUNTS="shared")
    project.deploy()
    ids = sorted(email.partition("@")[0] for email in project.gcloud.state["accounts"])
    assert ids == ["shop-build", "shop-proxy", "shop-scheduler", "shop-steps", "shop-workflow"]
    flags = project.gcloud.state["services"]["shop-reserve-stock"]["flags"]
    assert flags["--service-account"] == "shop-steps@shop-project.iam.gserviceaccount.com"


def test_ci_may_deploy_from_the_main_branch_only(new: Make) -> None:
    project = new(GITHUB_REPOSITORY="acme/shop", NOTIFICATION_CHANNEL="projects/p/notificationChannels/7")
    said = project.deploy()
    state = project.gcloud.state
    provider = state["providers"]["github"]
    assert provider["attributeCondition"] == "assertion.repository=='acme/shop' && assertion.ref=='refs/heads/main'"
    deployer = "serviceAccount:shop-deployer@shop-project.iam.gserviceaccount.com"
    for name in ("proxy", "workflow", "scheduler", "build", "charge-orders"):
        policy = state["accounts"][f"shop-{name}@shop-project.iam.gserviceaccount.com"]["policy"]
        assert policy["bindings"] == [{"role": "roles/iam.serviceAccountUser", "members": [deployer]}]
    [binding] = state["accounts"]["shop-deployer@shop-project.iam.gserviceaccount.com"]["policy"]["bindings"]
    assert binding["role"] == "roles/iam.workloadIdentityUser"
    assert binding["members"][0].endswith("/workloadIdentityPools/shop-github/attribute.repository/acme/shop")
    assert "providers/github" in said
    assert all(
        p["policy"]["notificationChannels"] == ["projects/p/notificationChannels/7"] for p in state["policies"].values()
    )
    project.gcloud.forget()
    project.deploy()
    assert project.gcloud.changes == []


def kept(project: Deployment) -> dict[str, object]:
    names = "accounts services workflows jobs metrics policies"
    return {name: value for name, value in project.gcloud.state.items() if name in names.split() and value}


def test_destroy_asks(deployed: Deployment) -> None:
    before = without_order(deployed)
    done = deployed.run("destroy", answer="yes\n")
    assert done.returncode == 1
    assert "nothing was deleted" in done.stderr
    assert without_order(deployed) == before


def test_destroy_takes_what_it_made_and_keeps_the_data(deployed: Deployment, gcloud: Gcloud) -> None:
    state = gcloud.state
    state["services"]["other"] = {"metadata": {"name": "other", "labels": {}}, "status": {}}
    gcloud.state = state
    done = deployed.run("destroy", answer="shop\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(kept(deployed)) == ["services"]
    assert list(gcloud.state["services"]) == ["other"]
    assert gcloud.state["policy"]["bindings"] == [{"role": "roles/owner", "members": ["user:someone@example.com"]}]
    assert list(gcloud.state["databases"]) == ["shop"]
    assert "its data in the database shop is kept" in done.stdout


def test_destroy_of_data_is_said_in_so_many_words(deployed: Deployment, gcloud: Gcloud) -> None:
    gcloud.plan({"match": "service-accounts delete shop-build", "stderr": "ERROR: internal error"})
    assert deployed.run("destroy", "--delete-data", "--yes").returncode == 1
    done = deployed.run("destroy", "--delete-data", "--yes")  # carries on
    assert done.returncode == 0, done.stderr
    assert gcloud.state["databases"] == {}
    assert kept(deployed) == {}


def test_destroy_never_deletes_a_database_that_others_share(first: Deployment, tmp_path: Path) -> None:
    project = twin(first, tmp_path)
    project.write("settings.env", (project.root / "settings.env").read_text() + "DATABASE=common\n")
    state = project.gcloud.state
    state["databases"]["common"] = state["databases"].pop("shop")
    project.gcloud.state = state
    assert project.run("destroy", "--delete-data", "--yes").returncode == 0
    assert list(project.gcloud.state["databases"]) == ["common"]
    assert project.gcloud.state["bulk_deleted"] == {"common": "shop_runs,shop_steps"}
