"""What a first deploy makes, command by command."""

from __future__ import annotations

import json
from typing import Any

from tests.deploy.deployment import Deployment
from tests.deploy.resources import mapping, members
from tools import settings as tool_settings

ACCOUNT = "{}@shop-project.iam.gserviceaccount.com"


def flags(deployment: Deployment, service: str) -> dict[str, str]:
    found: dict[str, str] = deployment.gcloud.state["services"][service]["flags"]
    return found


def bindings(policy: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (role, member.removeprefix("serviceAccount:").partition("@")[0], title)
        for role, member, title in members(policy)
        if member.startswith("serviceAccount:")
    }


def test_roles_are_the_narrowest_that_google_has(first: Deployment) -> None:
    only = "only database shop"
    assert bindings(first.gcloud.state["policy"]) == {
        ("roles/datastore.user", "shop-proxy", only),
        ("roles/workflows.invoker", "shop-proxy", ""),
        ("roles/logging.logWriter", "shop-workflow", ""),
        ("roles/run.builder", "shop-build", ""),
        ("roles/datastore.user", "shop-charge-orders", only),
        ("roles/datastore.user", "shop-reserve-stock", only),
        ("roles/bigquery.jobUser", "shop-charge-orders", ""),
    }
    conditions = [b["condition"] for b in first.gcloud.state["policy"]["bindings"] if "condition" in b]
    assert conditions == [{"expression": 'resource.name=="projects/shop-project/databases/shop"', "title": only}]


def test_every_binding_says_its_condition(first: Deployment) -> None:
    changed = [argv for argv in first.gcloud.changes if "add-iam-policy-binding" in argv and argv[0] == "projects"]
    assert len(changed) == 7
    assert all(any(word.startswith("--condition=") for word in argv) for argv in changed)


def test_each_service_is_called_by_one_account_only(first: Deployment) -> None:
    services = first.gcloud.state["services"]
    assert {name: bindings(service["policy"]) for name, service in services.items()} == {
        "shop-proxy": {("roles/run.invoker", "shop-scheduler", "")},
        "shop-charge-orders": {("roles/run.invoker", "shop-workflow", "")},
        "shop-reserve-stock": {("roles/run.invoker", "shop-workflow", "")},
    }
    for name in services:
        assert flags(first, name)["--ingress"] == "internal"
        assert "--no-allow-unauthenticated" in flags(first, name)


def test_secrets_are_pinned_and_read_by_their_step_alone(first: Deployment) -> None:
    assert bindings(first.gcloud.state["secrets"]["pay-key"]) == {
        ("roles/secretmanager.secretAccessor", "shop-charge-orders", "")
    }
    assert flags(first, "shop-charge-orders")["--set-secrets"] == "API_KEY=pay-key:3"
    assert "--clear-secrets" in flags(first, "shop-reserve-stock")
    assert "secretmanager.googleapis.com" in first.gcloud.state["apis"]


def test_a_service_is_deployed_as_its_step_says(first: Deployment) -> None:
    step = flags(first, "shop-charge-orders")
    wanted = {
        "--function": "main",
        "--base-image": "python313",
        "--concurrency": "4",
        "--timeout": "300",
        "--memory": "512Mi",
        "--cpu": "1",
        "--max-instances": "10",
        "--service-account": ACCOUNT.format("shop-charge-orders"),
        "--build-service-account": "projects/shop-project/serviceAccounts/" + ACCOUNT.format("shop-build"),
        "--set-build-env-vars": "SOURCE_DATE_EPOCH=315532800",
    }
    assert {key: step.get(key) for key in wanted} == wanted
    assert mapping(step["--set-env-vars"])["THREADS"] == step["--concurrency"]


def test_functions_get_the_environment_that_the_laptop_gives_them(first: Deployment) -> None:
    settings = tool_settings.load(first.root)
    proxy = mapping(flags(first, "shop-proxy")["--set-env-vars"])
    assert proxy == {**settings.proxy_environment(), "THREADS": "8"}
    step = mapping(flags(first, "shop-charge-orders")["--set-env-vars"])
    assert step == {**settings.step_environment("charge_orders"), "THREADS": "4"}
    assert step["GREETING"] == 'say "hi, you" for $5'


def test_only_what_the_function_needs_is_uploaded(first: Deployment) -> None:
    service = first.gcloud.state["services"]["shop-proxy"]
    assert service["files"] == ["exactly_once/__init__.py", "main.py", "requirements.txt"]
    assert (first.root / ".stage/shop-proxy/requirements.txt").read_text().split() == [
        "functions-framework==3.10.2",
        "google-cloud-firestore==2.34.1",
        "google-cloud-workflows==1.24.0",
    ]


def test_the_workflow_knows_its_functions(first: Deployment) -> None:
    workflow = first.gcloud.state["workflows"]["shop"]
    urls = {
        step: f"https://shop-{step.replace('_', '-')}-123456789012.europe-west1.run.app"
        for step in ("charge_orders", "reserve_stock")
    }
    assert workflow["env"] == tool_settings.workflow_environment(urls)
    assert workflow["serviceAccount"] == ACCOUNT.format("shop-workflow")


def test_the_job_calls_the_proxy_with_a_token_for_it(first: Deployment) -> None:
    url = "https://shop-proxy-123456789012.europe-west1.run.app"
    assert first.gcloud.state["jobs"]["shop"] == {
        "state": "ENABLED",
        "description": "exactly-once pipeline shop (prod)",
        "schedule": "0 3 * * *",
        "timeZone": "Europe/Berlin",
        "attemptDeadline": "90s",
        "httpTarget": {
            "uri": url + "/",
            "httpMethod": "POST",
            "oidcToken": {"serviceAccountEmail": ACCOUNT.format("shop-scheduler"), "audience": url},
        },
        "retryConfig": {
            "retryCount": 5,
            "maxRetryDuration": "3600s",
            "minBackoffDuration": "10s",
            "maxBackoffDuration": "180s",
            "maxDoublings": 4,
        },
    }


def test_the_database_is_protected_and_its_records_expire(first: Deployment) -> None:
    state = first.gcloud.state
    assert state["databases"] == {
        "shop": {
            "locationId": "europe-west1",
            "type": "FIRESTORE_NATIVE",
            "deleteProtectionState": "DELETE_PROTECTION_ENABLED",
        }
    }
    fields = {name.partition("/collectionGroups/")[2]: value for name, value in state["fields"].items()}
    expiring = {name for name, value in fields.items() if "ttlConfig" in value}
    assert expiring == {"shop_runs/fields/expire_at", "shop_steps/fields/expire_at"}
    exempt = {name.replace("/fields/", ".") for name, value in fields.items() if "indexConfig" in value}
    assert exempt == {
        *("shop_runs.claimed_at", "shop_runs.expire_at", "shop_runs.run"),
        *(
            "shop_steps.claimed_at",
            "shop_steps.expire_at",
            "shop_steps.result",
            "shop_steps.error",
            "shop_steps.resolutions",
        ),
    }


def test_alerts_count_lines_of_the_log(first: Deployment) -> None:
    state = first.gcloud.state
    filters = {name: metric["filter"] for name, metric in state["metrics"].items()}
    assert 'resource.labels.job_id="shop"' in filters["shop-scheduler-failed"]
    assert 'jsonPayload.state="FAILED"' in filters["shop-execution-failed"]
    assert 'jsonPayload.event="step.held"' in filters["shop-step-failed"]
    alerts = {policy["userLabels"]["alert"]: policy["policy"] for policy in state["policies"].values()}
    assert sorted(alerts) == ["execution", "scheduler", "step"]
    for name, alert in alerts.items():
        assert (
            f"logging.googleapis.com/user/shop-{name}-failed" in alert["conditions"][0]["conditionThreshold"]["filter"]
        )


def test_it_ends_with_where_to_look_and_how_to_begin(first: Deployment) -> None:
    assert "gcloud scheduler jobs run shop --location=europe-west1 --project=shop-project" in first.output
    assert "check skipped" in first.output
    assert "NOTIFICATION_CHANNEL" in first.output


def test_functions_come_before_the_workflow_and_that_before_the_job(first: Deployment) -> None:
    names = [" ".join(argv[:3]) for argv in first.gcloud.changes]
    assert max(i for i, name in enumerate(names) if name.startswith("run ")) < names.index("workflows deploy shop")
    assert names[-2:] == ["workflows deploy shop", "scheduler jobs create"]
    assert json.dumps(names).count("artifacts repositories create") == 1
    assert names.index("artifacts repositories create") < min(
        i for i, name in enumerate(names) if name.startswith("run deploy")
    )
