"""A second run, a failed run carried on, and what drifted in between."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.deploy.deployment import Deployment
from tests.support.gcloud import Gcloud

Make = Callable[..., Deployment]


def verbs(gcloud: Gcloud) -> list[str]:
    return sorted(" ".join(word for word in argv if not word.startswith("--")) for argv in gcloud.changes)


def test_a_second_run_changes_nothing_and_says_so(deployed: Deployment, gcloud: Gcloud) -> None:
    said = deployed.deploy()
    assert verbs(gcloud) == []
    assert "Nothing changed, nothing built" in said


def test_only_the_step_that_changed_is_built(deployed: Deployment, gcloud: Gcloud) -> None:
    deployed.write("functions/reserve_stock/main.py", "def main(request): return 'new'\n")
    deployed.deploy()
    assert verbs(gcloud) == ["run deploy shop-reserve-stock"]


def test_a_setting_of_one_step_deploys_it_again(deployed: Deployment, gcloud: Gcloud) -> None:
    deployed.step("reserve_stock", "MEMORY=1Gi\n")
    deployed.deploy()
    assert verbs(gcloud) == ["run deploy shop-reserve-stock"]


def test_a_change_of_the_runtime_deploys_every_function(deployed: Deployment, gcloud: Gcloud) -> None:
    deployed.write("exactly_once/__init__.py", "X = 2\n")
    deployed.deploy("--skip", "foundation")
    assert verbs(gcloud) == ["run deploy shop-charge-orders", "run deploy shop-proxy", "run deploy shop-reserve-stock"]


def test_a_new_schedule_updates_the_job_with_every_flag(deployed: Deployment, gcloud: Gcloud) -> None:
    text = (deployed.root / "settings.env").read_text()
    deployed.write("settings.env", text.replace("0 3 * * *", "30 4 * * *"))
    deployed.deploy("--only", "schedule")
    assert verbs(gcloud) == ["scheduler jobs update http shop"]
    assert gcloud.state["jobs"]["shop"]["schedule"] == "30 4 * * *"


@pytest.mark.parametrize("update_resumes", [False, True])
def test_a_paused_job_stays_paused(deployed: Deployment, gcloud: Gcloud, update_resumes: bool) -> None:
    state = gcloud.state
    state["jobs"]["shop"]["state"] = "PAUSED"
    state["jobs"]["shop"]["attemptDeadline"] = "180s"
    state["update_resumes"] = update_resumes
    gcloud.state = state
    said = deployed.deploy("--only=schedule")
    assert gcloud.state["jobs"]["shop"]["state"] == "PAUSED"
    assert gcloud.state["jobs"]["shop"]["attemptDeadline"] == "90s"
    assert ("scheduler jobs pause shop" in verbs(gcloud)) == update_resumes
    assert "is paused and stays so" in said


def test_what_was_changed_by_hand_is_put_right(deployed: Deployment, gcloud: Gcloud) -> None:
    state = gcloud.state
    state["databases"]["shop"]["deleteProtectionState"] = "DELETE_PROTECTION_DISABLED"
    state["services"]["shop-proxy"]["policy"] = {"bindings": [{"role": "roles/run.invoker", "members": ["allUsers"]}]}
    state["metrics"]["shop-step-failed"]["description"] = "something else"
    state["policy"]["bindings"] = [b for b in state["policy"]["bindings"] if b["role"] != "roles/run.builder"]
    gcloud.state = state
    deployed.deploy()
    assert verbs(gcloud) == [
        "firestore databases update",
        "logging metrics update shop-step-failed",
        "projects add-iam-policy-binding shop-project",
        "run services add-iam-policy-binding shop-proxy",
        "run services remove-iam-policy-binding shop-proxy",
    ]
    assert gcloud.state["services"]["shop-proxy"]["policy"]["bindings"][0]["members"] != ["allUsers"]


def test_a_failed_rollout_leaves_the_last_good_revision_and_is_tried_again(
    deployed: Deployment, gcloud: Gcloud
) -> None:
    state = gcloud.state
    state["broken"] = ["shop-reserve-stock"]
    gcloud.state = state
    deployed.write("functions/reserve_stock/main.py", "import nothing_of_that_name\n")
    done = deployed.run("--skip=foundation")
    assert done.returncode == 1
    assert "workflows deploy" not in " ".join(verbs(gcloud))
    status = gcloud.state["services"]["shop-reserve-stock"]["status"]
    assert status["latestReadyRevisionName"] == "shop-reserve-stock-00001"
    gcloud.state = {**gcloud.state, "broken": []}
    gcloud.forget()
    deployed.deploy("--skip=foundation")
    assert verbs(gcloud) == ["run deploy shop-reserve-stock"]  # although its label already has the hash


def test_fixed_traffic_is_told(deployed: Deployment, gcloud: Gcloud) -> None:
    state = gcloud.state
    state["services"]["shop-proxy"]["spec"]["traffic"] = [{"revisionName": "shop-proxy-00001", "percent": 100}]
    gcloud.state = state
    assert "update-traffic shop-proxy --to-latest" in deployed.deploy("--only", "proxy")


def test_a_service_without_a_step_is_told(deployed: Deployment, gcloud: Gcloud) -> None:
    deployed.step("extra")
    deployed.deploy()
    (deployed.root / "functions/extra/main.py").unlink()
    assert "shop-extra belongs to no step any more" in deployed.deploy("--skip=foundation")


def test_the_failing_part_speaks_last(deployed: Deployment, gcloud: Gcloud) -> None:
    deployed.write("exactly_once/__init__.py", "X = 3\n")
    gcloud.plan({"match": "^run deploy shop-charge-orders", "stderr": "ERROR: Build failed: a tale of woe"})
    done = deployed.run("--skip=foundation")
    assert done.returncode == 1
    tail = done.stderr[done.stderr.index("charge_orders failed:") :]
    assert "a tale of woe" in tail
    assert "failed: charge_orders" in tail.splitlines()[-1]
    assert "run deploy shop-reserve-stock" in verbs(gcloud)  # the others were not stopped half-way


def test_concurrent_policy_changes_and_late_accounts_are_waited_for(new: Make) -> None:
    project = new()
    project.gcloud.plan(
        {
            "match": "projects add-iam-policy-binding",
            "stderr": "ERROR: There were concurrent policy changes.",
            "times": 2,
        },
        {
            "match": "projects add-iam-policy-binding.*shop-workflow",
            "stderr": "ERROR: Service account shop-workflow@x does not exist.",
        },
        {"match": "monitoring policies create", "stderr": "ERROR: Cannot find metric that matches type", "times": 3},
    )
    project.deploy("--only", "foundation")
    assert sorted(project.gcloud.sleeps) == [2, 2, 2, 2, 4, 4] or sorted(project.gcloud.sleeps) == [2, 2, 2, 2, 2, 4]
    assert len(project.gcloud.state["policies"]) == 3


def test_what_cannot_get_better_is_not_tried_again(deployed: Deployment, gcloud: Gcloud) -> None:
    deployed.step("reserve_stock", "CPU=2\n")
    gcloud.plan({"match": "^run deploy", "stderr": "ERROR: PERMISSION_DENIED: Permission 'run.services.update' denied"})
    done = deployed.run("--only", "reserve_stock")
    assert done.returncode == 1
    assert gcloud.sleeps == []
    assert 'README.md, "Deploy"' in done.stderr


def test_a_change_whose_answer_was_lost_is_found_the_next_time(new: Make) -> None:
    project = new()
    lost = ("service-accounts create shop-proxy", "deploy shop-proxy", "workflows deploy", "scheduler jobs create")
    project.gcloud.plan(*({"match": match, "stderr": "ERROR: connection reset", "after": True} for match in lost))
    assert [project.run().returncode for _ in lost] == [1, 1, 1, 1]
    project.gcloud.plan()
    project.deploy()
    assert project.gcloud.state["builds"].count("shop-proxy") == 1


def resume_after(project: Deployment, calls: int) -> None:
    """Fail at every `calls`-th call that changes something, then carry on; the result is always the same."""
    project.gcloud.plan({"call": calls, "stderr": f"ERROR: call {calls} failed"})
    failed = project.run()
    project.gcloud.plan()
    project.deploy()
    project.gcloud.forget()
    project.deploy()
    assert project.gcloud.changes == [], (calls, failed.stdout)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_failure_at_any_command_is_carried_on(new: Make) -> None:
    whole = new()
    whole.deploy()
    total = len(whole.gcloud.calls)
    for call in range(1, total + 1):
        project = new()
        resume_after(project, call)
        assert without_order(project) == without_order(whole), call
        project.gcloud.close()


@pytest.mark.parametrize("call", [36])
def test_a_failure_in_the_middle_is_carried_on(new: Make, call: int) -> None:
    resume_after(new(), call)


def without_order(project: Deployment) -> object:
    """The resources, without what depends on the order in which parallel parts came to their turn, or on repetition."""
    state = project.gcloud.state
    return {
        "bindings": sorted(
            (b["role"], tuple(sorted(b["members"])), str(b.get("condition"))) for b in state["policy"]["bindings"]
        ),
        "alerts": sorted(str(policy["policy"]) for policy in state["policies"].values()),
        "services": {
            name: (service["metadata"]["labels"], service["policy"]) for name, service in state["services"].items()
        },
        **{
            kind: state[kind]
            for kind in ("accounts", "databases", "fields", "metrics", "workflows", "jobs", "repositories", "apis")
        },
    }


def test_numbers_in_messages_are_counted(first: Deployment) -> None:
    match = re.search(r"(\d+) changes made", first.output)
    assert match
    assert int(match[1]) == len(first.gcloud.changes)
