"""The real gcloud against a recording API: what Google would be sent is what is asserted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.deployment import Deployment
from tests.deploy.google import Google

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]

ACCOUNT = "shop-{}@shop-project.iam.gserviceaccount.com"
KNATIVE = "apis/serving.knative.dev/v1/namespaces/shop-project/services"


@pytest.fixture(scope="module")
def google() -> Iterator[Google]:
    google = Google()
    google.resources["v1/projects/shop-project/secrets/pay-key"] = {"name": "projects/shop-project/secrets/pay-key"}
    yield google
    google.close()


@pytest.fixture(scope="module")
def made(google: Google, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Deployed by the real gcloud, once."""
    project = Deployment(tmp_path_factory.mktemp("real"))
    project.step("charge_orders", 'RECEIVERS=PAYMENT_URL\nSETTINGS=GREETING\nSECRETS="API_KEY=pay-key:3"\nTHREADS=4\n')
    project.gcloud.close()
    done = run(project, google)
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def run(project: Deployment, google: Google, *arguments: str) -> subprocess.CompletedProcess[str]:
    home = {"PATH": os.environ["PATH"], "HOME": str(project.root), "TMPDIR": str(project.root.parent)}
    environment = {**home, **google.environment(project.root.parent / "configuration")}
    command = [str(project.root / "deploy.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)


def test_without_a_login_it_says_one_line(google: Google, tmp_path: Path) -> None:
    project = Deployment(tmp_path)
    project.gcloud.close()
    configured = google.environment(tmp_path / "configuration")
    del configured["CLOUDSDK_AUTH_DISABLE_CREDENTIALS"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(project.root), "TMPDIR": str(tmp_path), **configured}
    done = subprocess.run(
        [str(project.root / "deploy.sh")], env=environment, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert [line for line in done.stderr.splitlines() if "check skipped" not in line] == [
        "deploy.sh: gcloud is not logged in, or its login has expired: "
        "run  gcloud auth login  and start the same command again; nothing was changed"
    ]


def only(bodies: list[Any]) -> Any:
    assert len(bodies) == 1, bodies
    return bodies[0]


def test_the_job(google: Google, made: Deployment) -> None:
    url = "https://shop-proxy-123456789012.europe-west1.run.app"
    sent = only(google.told("POST", "v1/projects/shop-project/locations/europe-west1/jobs"))
    assert sent == {
        "name": "projects/shop-project/locations/europe-west1/jobs/shop",
        "description": "exactly-once pipeline shop (prod)",
        "schedule": "0 3 * * *",
        "timeZone": "Europe/Berlin",
        "attemptDeadline": "90s",
        "httpTarget": {
            "uri": url + "/",
            "httpMethod": "POST",
            "oidcToken": {"audience": url, "serviceAccountEmail": ACCOUNT.format("scheduler")},
        },
        "retryConfig": {
            "retryCount": 5,
            "maxRetryDuration": "3600s",
            "minBackoffDuration": "10s",
            "maxBackoffDuration": "180s",
            "maxDoublings": 4,
        },
    }


def test_the_workflow(google: Google, made: Deployment) -> None:
    sent = only(google.told("POST", "v1/projects/shop-project/locations/europe-west1/workflows"))
    url = "https://shop-charge-orders-123456789012.europe-west1.run.app"
    assert json.loads(sent["userEnvVars"]["STEP_URLS"]) == {"charge_orders": url}
    assert sent["serviceAccount"].endswith(ACCOUNT.format("workflow"))
    assert sent["callLogLevel"] == "LOG_ERRORS_ONLY"
    assert sent["sourceContents"] == (made.root / "workflows/main.yaml").read_text()
    assert {key: sent["labels"][key] for key in ("exactly_once", "environment")} == {
        "exactly_once": "shop",
        "environment": "prod",
    }


def test_a_service(google: Google, made: Deployment) -> None:
    services = {sent["metadata"]["name"]: sent for sent in google.told("POST", KNATIVE)}
    assert sorted(services) == ["shop-charge-orders", "shop-proxy"]
    sent = services["shop-charge-orders"]
    assert sent["metadata"]["annotations"]["run.googleapis.com/ingress"] == "internal"
    assert sent["metadata"]["annotations"]["run.googleapis.com/build-function-target"] == "main"
    template = sent["spec"]["template"]
    assert template["metadata"]["annotations"]["autoscaling.knative.dev/maxScale"] == "10"
    spec = template["spec"]
    assert spec["serviceAccountName"] == ACCOUNT.format("charge-orders")
    assert (spec["containerConcurrency"], spec["timeoutSeconds"]) == (4, 300)
    container = only(spec["containers"])
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["GREETING"]["value"] == 'say "hi, you" for $5'
    assert variables["PAYMENT_URL"]["value"] == "https://pay.example/v1?a=b&c=d"
    assert variables["THREADS"]["value"] == "4"
    assert variables["API_KEY"]["valueFrom"] == {"secretKeyRef": {"key": "3", "name": "pay-key"}}


def test_the_build(google: Google, made: Deployment) -> None:
    builds = google.told("POST", "v2/projects/shop-project/locations/europe-west1/builds:submit")
    assert len(builds) == 2
    for build in builds:
        assert build["serviceAccount"] == "projects/shop-project/serviceAccounts/" + ACCOUNT.format("build")
        assert build["buildpackBuild"] == {
            "baseImage": "python313",
            "enableAutomaticUpdates": True,
            "environmentVariables": {"SOURCE_DATE_EPOCH": "315532800"},
            "functionTarget": "main",
        }


def bindings(google: Google, resource: str) -> set[tuple[str, str, str]]:
    """(role, account, expression of its condition), as the last policy that was set has them."""
    policy = google.told("POST", f"v1.*/{resource}:setIamPolicy")[-1]["policy"]
    return {
        (binding["role"], member.removeprefix("serviceAccount:"), binding.get("condition", {}).get("expression", ""))
        for binding in policy["bindings"]
        for member in binding["members"]
    }


def test_iam_policies(google: Google, made: Deployment) -> None:
    only_database = 'resource.name=="projects/shop-project/databases/shop"'
    assert bindings(google, "projects/shop-project") == {
        ("roles/datastore.user", ACCOUNT.format("proxy"), only_database),
        ("roles/datastore.user", ACCOUNT.format("charge-orders"), only_database),
        ("roles/workflows.invoker", ACCOUNT.format("proxy"), ""),
        ("roles/logging.logWriter", ACCOUNT.format("workflow"), ""),
        ("roles/run.builder", ACCOUNT.format("build"), ""),
    }
    assert bindings(google, "services/shop-proxy") == {("roles/run.invoker", ACCOUNT.format("scheduler"), "")}
    assert bindings(google, "services/shop-charge-orders") == {("roles/run.invoker", ACCOUNT.format("workflow"), "")}
    assert bindings(google, "secrets/pay-key") == {
        ("roles/secretmanager.secretAccessor", ACCOUNT.format("charge-orders"), "")
    }


def test_the_database_its_ttl_and_its_exemptions(google: Google, made: Deployment) -> None:
    database = only(google.told("POST", "v1/projects/shop-project/databases"))
    assert database["deleteProtectionState"] == "DELETE_PROTECTION_ENABLED"
    assert (database["locationId"], database["type"]) == ("europe-west1", "FIRESTORE_NATIVE")
    place = "v1/projects/shop-project/databases/shop/collectionGroups/"
    for group, fields in {
        "shop_runs": ("claimed_at", "expire_at", "run"),
        "shop_steps": ("claimed_at", "expire_at", "result", "error", "resolutions"),
    }.items():
        for field in fields:
            sent = google.told("PATCH", f"{place}{group}/fields/{field}")
            assert any(body.get("indexConfig") == {} for body in sent), (group, field, sent)
            assert any("ttlConfig" in body for body in sent) == (field == "expire_at")


def test_alerts(google: Google, made: Deployment) -> None:
    metrics = {sent["name"]: sent["filter"] for sent in google.told("POST", "v2/projects/shop-project/metrics")}
    assert sorted(metrics) == ["shop-execution-failed", "shop-scheduler-failed", "shop-step-failed"]
    alerts = google.told("POST", "v3/projects/shop-project/alertPolicies")
    assert sorted(sent["userLabels"]["alert"] for sent in alerts) == ["execution", "scheduler", "step"]
    for sent in alerts:
        threshold = only(sent["conditions"])["conditionThreshold"]
        assert (threshold["comparison"], threshold.get("thresholdValue", 0)) == ("COMPARISON_GT", 0)
        assert f"user/shop-{sent['userLabels']['alert']}-failed" in threshold["filter"]


def test_a_second_run_writes_nothing(google: Google, made: Deployment) -> None:
    before = len(google.writes)
    done = run(made, google)
    assert done.returncode == 0, done.stdout + done.stderr
    assert google.writes[before:] == []
    assert "Nothing changed, nothing built" in done.stdout
