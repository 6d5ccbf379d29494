"""The resources behind the recording gcloud, as far as deploy.sh can tell them from Google's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Resource = dict[str, Any]
Resources = list[Resource]


class GcloudError(Exception):
    """What gcloud prints on stderr, and its exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Call:
    """A parsed command line."""

    name: str
    positionals: list[str]
    flags: dict[str, str]
    folder: Path

    def __getitem__(self, flag: str) -> str:
        return self.flags["--" + flag]

    def path(self, flag: str) -> Path:
        """The file or folder that a flag names, from where the command was started."""
        return self.folder / self[flag]

    @property
    def first(self) -> str:
        return self.positionals[0]


@dataclass(frozen=True)
class Command:
    """What a command takes; `positionals` -1: any number."""

    run: Callable[[Model, Call], Resources]
    positionals: int
    flags: frozenset[str]
    required: frozenset[str]
    changes: bool


COMMANDS: dict[str, Command] = {}

Handler = Callable[["Model", Call], Resources]


def command(
    name: str, positionals: int = 1, flags: str = "", required: str = "", changes: bool = True
) -> Callable[[Handler], Handler]:
    def register(run: Handler) -> Handler:
        both = frozenset("--" + flag for flag in f"{flags} {required}".split())
        needed = frozenset("--" + flag for flag in required.split())
        COMMANDS[name] = Command(run, positionals, both, needed, changes)
        return run

    return register


def fresh(project: str = "shop-project", number: str = "123456789012") -> dict[str, Any]:
    """A new project with billing and nothing in it."""
    return {
        "projects": {project: {"projectNumber": number, "lifecycleState": "ACTIVE"}},
        "billing": True,
        "apis": [],
        "policy": {"bindings": [{"role": "roles/owner", "members": ["user:someone@example.com"]}]},
        "etag": 0,
        "builds": [],
        **{
            name: {}
            for name in (
                "accounts databases fields repositories metrics policies secrets services run_jobs workflows jobs "
                "pools providers bulk_deleted"
            ).split()
        },
    }


def mapping(text: str) -> dict[str, str]:
    """gcloud's KEY=VALUE,... with its ^DELIM^ form."""
    delimiter = ","
    if text.startswith("^"):
        delimiter, text = text[1:].split("^", 1)
    pairs = [pair.partition("=") for pair in text.split(delimiter)] if text else []
    if any(not sign for _, sign, _ in pairs):
        raise GcloudError(f"ERROR: Bad syntax for dict arg: [{text}].", 2)
    return {key: value for key, _, value in pairs}


@dataclass
class Model:
    """One command's look at the state; `etag` is the project policy's when the command began."""

    state: dict[str, Any]
    etag: int

    def run(self, call: Call) -> Resources:
        project = call.flags.get("--project") or (call.first if call.name.startswith(("projects", "billing")) else None)
        if project not in self.state["projects"]:
            raise GcloudError(
                f"ERROR: [someone@example.com] does not have permission or the project [{project}] does not exist"
            )
        return COMMANDS[call.name].run(self, call)

    def one(self, kind: str, key: str) -> Resource:
        found: Resource | None = self.state[kind].get(key)
        if found is None:
            raise GcloudError(f"ERROR: NOT_FOUND: {kind} {key} not found")
        return found

    def add(self, kind: str, key: str, resource: Resource) -> Resources:
        if key in self.state[kind]:
            raise GcloudError(f"ERROR: ALREADY_EXISTS: {kind} {key} already exists")
        self.state[kind][key] = resource
        return [resource]

    def need_api(self, api: str) -> None:
        if f"{api}.googleapis.com" not in self.state["apis"]:
            raise GcloudError(
                f"ERROR: SERVICE_DISABLED: {api}.googleapis.com has not been used in project before or it is disabled"
            )

    def need_account(self, email: str) -> None:
        email = email.removeprefix("serviceAccount:").rpartition("/")[2]
        if email.endswith(".iam.gserviceaccount.com") and email not in self.state["accounts"]:
            raise GcloudError(f"ERROR: INVALID_ARGUMENT: Service account {email} does not exist.")

    def bind(self, policy: Resource, call: Call) -> Resources:
        """Add a binding, with gcloud's rules for conditions."""
        self.need_account(call["member"])
        condition = call.flags.get("--condition")
        bindings = policy.setdefault("bindings", [])
        if condition is None and any("condition" in binding for binding in bindings):
            raise GcloudError(
                "ERROR: Adding a binding without specifying a condition to a policy containing conditions"
                " is prohibited in non-interactive mode."
            )
        wanted = {"role": call["role"]}
        if condition not in (None, "None"):
            wanted["condition"] = mapping(condition)  # type: ignore[assignment]
        for binding in bindings:
            if {key: binding[key] for key in binding if key != "members"} == wanted:
                if call["member"] not in binding["members"]:
                    binding["members"].append(call["member"])
                return [policy]
        bindings.append({**wanted, "members": [call["member"]]})
        return [policy]

    def unbind(self, policy: Resource, call: Call) -> Resources:
        hits = [b for b in policy.get("bindings", []) if b["role"] == call["role"] and call["member"] in b["members"]]
        if not hits:
            raise GcloudError("ERROR: Policy binding with the specified principal, role, and condition not found!")
        for binding in hits:
            binding["members"].remove(call["member"])
        policy["bindings"] = [binding for binding in policy["bindings"] if binding["members"]]
        return [policy]

    def change_policy(self) -> None:
        if self.state["etag"] != self.etag:
            raise GcloudError(
                "ERROR: ABORTED: There were concurrent policy changes. Please retry the whole read-modify-write."
            )
        self.state["etag"] += 1


def listed(state: dict[str, Any], kind: str) -> Resources:
    return list(state[kind].values())


# ---- project


@command("projects describe", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.state["projects"][call.first]]


@command("billing projects describe", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [{"billingEnabled": model.state["billing"]}]


@command("services list", 0, "enabled", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [{"config": {"name": api}} for api in model.state["apis"]]


@command("services enable", -1)
def _(model: Model, call: Call) -> Resources:
    if not model.state["billing"]:
        raise GcloudError(
            "ERROR: FAILED_PRECONDITION: Billing account for project is not found. Billing must be enabled"
        )
    model.state["apis"] = sorted({*model.state["apis"], *call.positionals})
    return []


@command("projects get-iam-policy", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.state["policy"]]


@command("projects add-iam-policy-binding", 1, "condition", "member role")
def _(model: Model, call: Call) -> Resources:
    model.change_policy()
    return model.bind(model.state["policy"], call)


@command("projects remove-iam-policy-binding", 1, "all condition", "member role")
def _(model: Model, call: Call) -> Resources:
    model.change_policy()
    return model.unbind(model.state["policy"], call)


# ---- accounts


@command("iam service-accounts list", 0, changes=False)
def _(model: Model, call: Call) -> Resources:
    return listed(model.state, "accounts")


@command("iam service-accounts create", 1, "display-name description")
def _(model: Model, call: Call) -> Resources:
    model.need_api("iam")
    if not 6 <= len(call.first) <= 30:
        raise GcloudError(f"ERROR: INVALID_ARGUMENT: the account id {call.first} must have 6 to 30 characters")
    if len(model.state["accounts"]) >= model.state.get("account_quota", 100):
        raise GcloudError("ERROR: RESOURCE_EXHAUSTED: Maximum number of service accounts on project reached.")
    email = f"{call.first}@{call['project']}.iam.gserviceaccount.com"
    return model.add("accounts", email, {"email": email, "description": call["description"], "policy": {}})


@command("iam service-accounts delete")
def _(model: Model, call: Call) -> Resources:
    model.one("accounts", call.first)
    del model.state["accounts"][call.first]
    return []


@command("iam service-accounts get-iam-policy", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("accounts", call.first)["policy"]]


@command("iam service-accounts add-iam-policy-binding", 1, "condition", "member role")
def _(model: Model, call: Call) -> Resources:
    return model.bind(model.one("accounts", call.first)["policy"], call)


@command("iam workload-identity-pools describe", 1, "", "location", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("pools", call.first)]


@command("iam workload-identity-pools create", 1, "description", "location")
def _(model: Model, call: Call) -> Resources:
    return model.add("pools", call.first, {"state": "ACTIVE"})


@command("iam workload-identity-pools delete", 1, "", "location")
def _(model: Model, call: Call) -> Resources:
    model.one("pools", call.first)["state"] = "DELETED"
    return []


@command("iam workload-identity-pools undelete", 1, "", "location")
def _(model: Model, call: Call) -> Resources:
    model.one("pools", call.first)["state"] = "ACTIVE"
    return []


PROVIDER = "location workload-identity-pool"


@command("iam workload-identity-pools providers describe", 1, "", PROVIDER, changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("providers", call.first)]


@command(
    "iam workload-identity-pools providers create-oidc",
    1,
    "attribute-condition",
    f"{PROVIDER} issuer-uri attribute-mapping",
)
def _(model: Model, call: Call) -> Resources:
    return model.add(
        "providers", call.first, {"attributeCondition": call["attribute-condition"], "issuer": call["issuer-uri"]}
    )


@command("iam workload-identity-pools providers update-oidc", 1, "attribute-condition", PROVIDER)
def _(model: Model, call: Call) -> Resources:
    model.one("providers", call.first)["attributeCondition"] = call["attribute-condition"]
    return []


# ---- Firestore


@command("firestore databases describe", 0, "", "database", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("databases", call["database"])]


@command("firestore databases create", 0, "delete-protection type", "database location")
def _(model: Model, call: Call) -> Resources:
    model.need_api("firestore")
    protection = "DELETE_PROTECTION_ENABLED" if "--delete-protection" in call.flags else "DELETE_PROTECTION_DISABLED"
    database = {"locationId": call["location"], "type": "FIRESTORE_NATIVE", "deleteProtectionState": protection}
    return model.add("databases", call["database"], database)


@command("firestore databases update", 0, "delete-protection no-delete-protection", "database")
def _(model: Model, call: Call) -> Resources:
    state = "ENABLED" if "--delete-protection" in call.flags else "DISABLED"
    model.one("databases", call["database"])["deleteProtectionState"] = f"DELETE_PROTECTION_{state}"
    return []


@command("firestore databases delete", 0, "", "database")
def _(model: Model, call: Call) -> Resources:
    if model.one("databases", call["database"])["deleteProtectionState"] == "DELETE_PROTECTION_ENABLED":
        raise GcloudError("ERROR: FAILED_PRECONDITION: the database has delete protection enabled")
    del model.state["databases"][call["database"]]
    return []


@command("firestore bulk-delete", 0, "collection-ids", "database")
def _(model: Model, call: Call) -> Resources:
    model.state["bulk_deleted"][call["database"]] = call["collection-ids"]
    return []


def _field(model: Model, call: Call) -> Resource:
    model.one("databases", call["database"])
    database = f"projects/{call['project']}/databases/{call['database']}"
    name = f"{database}/collectionGroups/{call['collection-group']}/fields/{call.first}"
    found: Resource = model.state["fields"].setdefault(name, {"name": name})
    return found


@command("firestore fields ttls list", 0, "", "database", changes=False)
def _(model: Model, call: Call) -> Resources:
    model.one("databases", call["database"])
    return [item for item in listed(model.state, "fields") if "ttlConfig" in item]


@command("firestore fields ttls update", 1, "enable-ttl async", "collection-group database")
def _(model: Model, call: Call) -> Resources:
    _field(model, call)["ttlConfig"] = {"state": "CREATING"}
    return []


@command("firestore indexes fields list", 0, "", "database", changes=False)
def _(model: Model, call: Call) -> Resources:
    model.one("databases", call["database"])
    return [item for item in listed(model.state, "fields") if "indexConfig" in item]


@command("firestore indexes fields update", 1, "disable-indexes", "collection-group database")
def _(model: Model, call: Call) -> Resources:
    _field(model, call)["indexConfig"] = {}
    return []


# ---- repository, secrets, alerts


@command("artifacts repositories describe", 1, "", "location", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("repositories", call.first)]


@command("artifacts repositories create", 1, "", "location repository-format")
def _(model: Model, call: Call) -> Resources:
    return model.add("repositories", call.first, {"format": call["repository-format"].upper()})


@command("secrets get-iam-policy", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("secrets", call.first)]


@command("secrets add-iam-policy-binding", 1, "condition", "member role")
def _(model: Model, call: Call) -> Resources:
    return model.bind(model.one("secrets", call.first), call)


@command("logging metrics list", 0, changes=False)
def _(model: Model, call: Call) -> Resources:
    return listed(model.state, "metrics")


@command("logging metrics create", 1, "", "description log-filter")
def _(model: Model, call: Call) -> Resources:
    return model.add(
        "metrics", call.first, {"name": call.first, "description": call["description"], "filter": call["log-filter"]}
    )


@command("logging metrics update", 1, "", "description log-filter")
def _(model: Model, call: Call) -> Resources:
    model.one("metrics", call.first).update(description=call["description"], filter=call["log-filter"])
    return []


@command("logging metrics delete")
def _(model: Model, call: Call) -> Resources:
    model.one("metrics", call.first)
    del model.state["metrics"][call.first]
    return []


@command("alpha monitoring policies list", 0, changes=False)
def _(model: Model, call: Call) -> Resources:
    return listed(model.state, "policies")


@command("alpha monitoring policies create", 0, "user-labels", "policy-from-file")
def _(model: Model, call: Call) -> Resources:
    policy = json.loads(call.path("policy-from-file").read_text())
    kind, _, metric = policy["conditions"][0]["conditionThreshold"]["filter"].split('"')[1].rpartition("/")
    if kind == "logging.googleapis.com/user" and metric not in model.state["metrics"]:
        raise GcloudError(
            "ERROR: NOT_FOUND: Cannot find metric that matches the filter; it could take up to 10 minutes"
        )
    name = f"projects/{call['project']}/alertPolicies/{len(model.state['policies']) + 1}"
    return model.add("policies", name, {"name": name, "policy": policy, "userLabels": mapping(call["user-labels"])})


@command("alpha monitoring policies update", 1, "update-user-labels policy-from-file")
def _(model: Model, call: Call) -> Resources:
    policy = model.one("policies", call.first)
    policy["policy"] = json.loads(call.path("policy-from-file").read_text())
    policy["userLabels"].update(mapping(call["update-user-labels"]))
    return []


@command("alpha monitoring policies delete")
def _(model: Model, call: Call) -> Resources:
    model.one("policies", call.first)
    del model.state["policies"][call.first]
    return []


# ---- Cloud Run


@command("run services list", 0, "", "region", changes=False)
def _(model: Model, call: Call) -> Resources:
    model.need_api("run")
    return listed(model.state, "services")


@command("run services describe", 1, "", "region", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("services", call.first)]


DEPLOY = (
    "base-image build-service-account clear-secrets concurrency cpu function ingress labels max-instances memory "
    "no-allow-unauthenticated service-account set-build-env-vars set-env-vars set-secrets timeout"
)


@command("run deploy", 1, DEPLOY, "region source")
def _(model: Model, call: Call) -> Resources:
    for api in ("run", "cloudbuild", "artifactregistry"):
        model.need_api(api)
    model.need_account(call["service-account"])
    model.need_account(call["build-service-account"])
    model.one("repositories", "cloud-run-source-deploy")
    source = call.path("source")
    if not {"main.py", "requirements.txt"} <= {file.name for file in source.iterdir()}:
        raise GcloudError("ERROR: Build failed: missing main.py or requirements.txt")
    model.state["builds"].append(call.first)
    old = model.state["services"].get(call.first, {})
    number = old.get("number", 0) + 1
    revision = f"{call.first}-{number:05}"
    service = {
        "number": number,
        "metadata": {
            "name": call.first,
            "labels": {**old.get("metadata", {}).get("labels", {}), **mapping(call["labels"])},
        },
        "spec": old.get("spec", {"traffic": [{"latestRevision": True, "percent": 100}]}),
        "status": {
            **old.get("status", {}),
            "latestCreatedRevisionName": revision,
            "url": f"https://{call.first}-hash.a.run.app",
        },
        "flags": call.flags,
        "files": sorted(str(file.relative_to(source)) for file in source.rglob("*") if file.is_file()),
        "policy": old.get("policy", {}),
    }
    model.state["services"][call.first] = service
    if call.first in model.state.get("broken", []):
        raise GcloudError("ERROR: Revision is not ready and cannot serve traffic. The container failed to start.")
    service["status"]["latestReadyRevisionName"] = revision
    return [service]


@command("run services delete", 1, "", "region")
def _(model: Model, call: Call) -> Resources:
    model.one("services", call.first)
    del model.state["services"][call.first]
    return []


@command("run services get-iam-policy", 1, "", "region", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("services", call.first)["policy"]]


@command("run services add-iam-policy-binding", 1, "", "region member role")
def _(model: Model, call: Call) -> Resources:
    return model.bind(model.one("services", call.first)["policy"], call)


@command("run services remove-iam-policy-binding", 1, "", "region member role")
def _(model: Model, call: Call) -> Resources:
    return model.unbind(model.one("services", call.first)["policy"], call)


RUN_JOB = "cpu labels max-retries memory service-account set-env-vars task-timeout tasks"


@command("run jobs describe", 1, "", "region", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("run_jobs", call.first)]


@command("run jobs deploy", 1, RUN_JOB, "region source")
def _(model: Model, call: Call) -> Resources:
    for api in ("run", "cloudbuild", "artifactregistry"):
        model.need_api(api)
    model.need_account(call["service-account"])
    source = call.path("source")
    if not {"Procfile", "requirements.txt"} <= {file.name for file in source.iterdir()}:
        raise GcloudError("ERROR: Build failed: missing Procfile or requirements.txt")
    model.state["builds"].append(call.first)
    model.state["run_jobs"][call.first] = {
        "metadata": {"name": call.first, "labels": mapping(call["labels"])},
        "flags": call.flags,
        "policy": model.state["run_jobs"].get(call.first, {}).get("policy", {}),
    }
    return []


@command("run jobs delete", 1, "", "region")
def _(model: Model, call: Call) -> Resources:
    model.one("run_jobs", call.first)
    del model.state["run_jobs"][call.first]
    return []


@command("run jobs get-iam-policy", 1, "", "region", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("run_jobs", call.first)["policy"]]


@command("run jobs add-iam-policy-binding", 1, "", "region member role")
def _(model: Model, call: Call) -> Resources:
    return model.bind(model.one("run_jobs", call.first)["policy"], call)


# ---- Workflows and Scheduler


@command("workflows describe", 1, "", "location", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("workflows", call.first)]


@command("workflows deploy", 1, "call-log-level labels service-account set-env-vars", "location source")
def _(model: Model, call: Call) -> Resources:
    model.need_api("workflows")
    model.need_account(call["service-account"])
    model.state["workflows"][call.first] = {
        "state": "ACTIVE",
        "labels": mapping(call["labels"]),
        "env": mapping(call["set-env-vars"]),
        "source": call.path("source").read_text(),
        "serviceAccount": call["service-account"],
    }
    return []


@command("workflows delete", 1, "", "location")
def _(model: Model, call: Call) -> Resources:
    model.one("workflows", call.first)
    del model.state["workflows"][call.first]
    return []


JOB = (
    "attempt-deadline description http-method max-backoff max-doublings max-retry-attempts max-retry-duration "
    "min-backoff schedule time-zone uri"
)
TOKENS = "oauth-service-account-email oauth-token-scope oidc-service-account-email oidc-token-audience"


def _headers(call: Call) -> Resource:
    given = call.flags.get("--headers") or call.flags.get("--update-headers")
    return {"headers": mapping(given)} if given else {}


def _token(call: Call) -> Resource:
    if "--oauth-service-account-email" in call.flags:
        account, scope = call["oauth-service-account-email"], call["oauth-token-scope"]
        return {"oauthToken": {"serviceAccountEmail": account, "scope": scope}}
    account, audience = call["oidc-service-account-email"], call["oidc-token-audience"]
    return {"oidcToken": {"serviceAccountEmail": account, "audience": audience}}


def _job(call: Call) -> Resource:
    return {
        "description": call["description"],
        "schedule": call["schedule"],
        "timeZone": call["time-zone"],
        "attemptDeadline": call["attempt-deadline"],
        "httpTarget": {
            "uri": call["uri"],
            "httpMethod": call["http-method"],
            **_headers(call),
            **_token(call),
        },
        "retryConfig": {
            "retryCount": int(call["max-retry-attempts"]) or None,  # the API leaves zeros out
            "maxRetryDuration": call["max-retry-duration"],
            "minBackoffDuration": call["min-backoff"],
            "maxBackoffDuration": call["max-backoff"],
            "maxDoublings": int(call["max-doublings"]) or None,
        },
    }


@command("scheduler jobs describe", 1, "", "location", changes=False)
def _(model: Model, call: Call) -> Resources:
    return [model.one("jobs", call.first)]


@command("scheduler jobs create http", 1, f"headers {TOKENS}", f"location {JOB}")
def _(model: Model, call: Call) -> Resources:
    job = _job(call)
    for token in ("oauthToken", "oidcToken"):
        model.need_account(job["httpTarget"].get(token, {}).get("serviceAccountEmail", ""))
    return model.add("jobs", call.first, {"state": "ENABLED", **job})


@command("scheduler jobs update http", 1, f"update-headers {TOKENS}", f"location {JOB}")
def _(model: Model, call: Call) -> Resources:
    job = model.one("jobs", call.first)
    state = "ENABLED" if model.state.get("update_resumes") else job["state"]
    job.update({**_job(call), "state": state})
    return []


@command("scheduler jobs pause", 1, "", "location")
def _(model: Model, call: Call) -> Resources:
    model.one("jobs", call.first)["state"] = "PAUSED"
    return []


@command("scheduler jobs delete", 1, "", "location")
def _(model: Model, call: Call) -> Resources:
    model.one("jobs", call.first)
    del model.state["jobs"][call.first]
    return []


def members(policy: Resource) -> Iterable[tuple[str, str, str]]:
    """(role, member, title of the condition) of every binding."""
    for binding in policy.get("bindings", []):
        for member in binding["members"]:
            yield binding["role"], member, binding.get("condition", {}).get("title", "")
