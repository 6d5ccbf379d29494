"""The Workflows API, version 1: workflows, their revisions, and the long-running operations that change them.

An operation is done when it is answered. A source that cannot be deployed, or a name that is taken, ends its operation
with an error and leaves everything as it was, as on Google Cloud; what else is wrong with a request is refused at once.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..clock import Clock
from . import definition, filters
from .errors import DefinitionErrors
from .journal import Journal
from .limits import ENVIRONMENT_LIMIT, ENVIRONMENT_VALUE_LIMIT
from .resources import (
    LOCATION_NAME,
    WORKFLOW_NAME,
    Resource,
    check_choice,
    check_fields,
    check_labels,
    check_workflow_id,
    page,
    parse_name,
    refuse_unemulated,
    rfc3339,
)
from .status import ApiError, invalid, not_found

WORKFLOW_TYPE = "type.googleapis.com/google.cloud.workflows.v1.Workflow"
METADATA_TYPE = "type.googleapis.com/google.cloud.workflows.v1.OperationMetadata"
EMPTY_TYPE = "type.googleapis.com/google.protobuf.Empty"

CALL_LOG_LEVELS = ("CALL_LOG_LEVEL_UNSPECIFIED", "LOG_ALL_CALLS", "LOG_ERRORS_ONLY", "LOG_NONE")
HISTORY_LEVELS = (
    "EXECUTION_HISTORY_LEVEL_UNSPECIFIED",
    "EXECUTION_HISTORY_BASIC",
    "EXECUTION_HISTORY_DETAILED",
)

OPERATIONS_KEPT = 1000

_OF_REVISION = ("sourceContents", "serviceAccount", "userEnvVars")
_OF_WORKFLOW = ("description", "labels", "callLogLevel", "executionHistoryLevel")
_INPUT = frozenset(_OF_REVISION + _OF_WORKFLOW)
_OUTPUT = frozenset(
    {"name", "state", "revisionId", "createTime", "updateTime", "revisionCreateTime", "stateError"}
    | {"allKmsKeys", "allKmsKeysVersions", "cryptoKeyVersion", "satisfiesPzi", "satisfiesPzs"}
)
_UNEMULATED = {"cryptoKeyName": "CMEK", "tags": "Resource Manager tags"}
_KNOWN = _INPUT | _OUTPUT | frozenset(_UNEMULATED)

FIELDS: filters.Fields = {
    "name": filters.field("name"),
    "description": filters.field("description"),
    "state": filters.field("state", "enum"),
    "createTime": filters.field("createTime", "time"),
    "updateTime": filters.field("updateTime", "time"),
    "revisionId": filters.field("revisionId"),
    "serviceAccount": filters.field("serviceAccount"),
    "labels": filters.field("labels", "map"),
}


@dataclass(frozen=True)
class Deployed:
    """A revision as an execution needs it."""

    workflow: Resource
    definition: definition.Definition


class Deployments:
    """Keeps workflows by name, each as its revisions, oldest first. Thread-safe.

    `connectors` says why a connector call cannot be deployed (None: it can).
    """

    def __init__(
        self, journal: Journal, clock: Clock, ids: random.Random, connectors: Callable[[str], str | None]
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._connectors = connectors
        self._lock = threading.RLock()
        self._workflows: dict[str, list[Resource]] = {}
        self._compiled: dict[tuple[str, str], definition.Definition] = {}
        self._operations: dict[str, Resource] = {}
        self.deleted: Callable[[str], None] = lambda name: None
        """Called when the workflow `name` has been deleted."""
        for revision in journal.all("workflow"):
            self._workflows.setdefault(revision["name"], []).append(revision)

    # --- what executions need

    def latest(self, name: str) -> Deployed:
        """The revision that a new execution runs. Raises ApiError."""
        parse_name(WORKFLOW_NAME, name, "workflow")
        with self._lock:
            workflow = self._revisions(name)[-1]
            key = (name, workflow["revisionId"])
            if key not in self._compiled:
                self._compiled[key] = self._compile(workflow)
            return Deployed(workflow, self._compiled[key])

    def require(self, name: str) -> None:
        """Raises ApiError NOT_FOUND if there is no such workflow."""
        with self._lock:
            self._revisions(name)

    def _revisions(self, name: str) -> list[Resource]:
        if name not in self._workflows:
            raise not_found(name)
        return self._workflows[name]

    def _compile(self, workflow: Resource) -> definition.Definition:
        try:
            return definition.load(workflow.get("sourceContents", ""), connectors=self._connectors)
        except DefinitionErrors as error:
            raise invalid(str(error)) from None

    # --- the API

    def create_workflow(self, request: Resource) -> Resource:
        """Operation -> Workflow. `request`: parent, workflowId, workflow."""
        place = parse_name(LOCATION_NAME, request.get("parent"), "parent")
        workflow_id = check_workflow_id(request.get("workflowId"))
        given = self._checked(request.get("workflow", {}))
        name = f"projects/{place['project']}/locations/{place['location']}/workflows/{workflow_id}"
        with self._lock:
            if name in self._workflows:
                taken = ApiError("ALREADY_EXISTS", f"Resource '{name}' already exists")
                return self._operation("create", name, error={"code": taken.code, "message": taken.message})
            now = rfc3339(self._clock.now())
            workflow = {
                **given,
                "name": name,
                "state": "ACTIVE",
                "createTime": now,
                "updateTime": now,
                "serviceAccount": service_account(place["project"], given.get("serviceAccount")),
            }
            return self._apply("create", workflow, [], new_revision=True)

    def update_workflow(self, request: Resource) -> Resource:
        """Operation -> Workflow. `request`: workflow (with its name), updateMask (comma-separated, or absent: all)."""
        given = self._checked(request.get("workflow", {}))
        name = str(request.get("workflow", {}).get("name", ""))
        place = parse_name(WORKFLOW_NAME, name, "workflow name")
        mask = self._mask(request.get("updateMask"))
        with self._lock:
            revisions = self._revisions(name)
            workflow = dict(revisions[-1])
            for field in mask:
                workflow.pop(field, None)
                if field in given:
                    workflow[field] = given[field]
            workflow["serviceAccount"] = service_account(place["project"], workflow.get("serviceAccount"))
            workflow["updateTime"] = rfc3339(self._clock.now())
            return self._apply("update", workflow, revisions, new_revision=any(field in _OF_REVISION for field in mask))

    def _apply(self, verb: str, workflow: Resource, revisions: list[Resource], *, new_revision: bool) -> Resource:
        """Compile and store; `revisions` are those that stood before."""
        name = workflow["name"]
        if new_revision:
            ordinal = int(revisions[-1]["revisionId"][:6]) + 1 if revisions else 1
            workflow["revisionId"] = f"{ordinal:06d}-{self._ids.randrange(16**3):03x}"
            workflow["revisionCreateTime"] = workflow["updateTime"]
            try:
                self._compiled[name, workflow["revisionId"]] = self._compile(workflow)
            except ApiError as error:
                return self._operation(verb, name, error={"code": error.code, "message": error.message})
        self._workflows[name] = [*(revisions if new_revision else revisions[:-1]), workflow]
        self._journal.put("workflow", f"{name}@{workflow['revisionId']}", workflow)
        return self._operation(verb, name, response={"@type": WORKFLOW_TYPE, **workflow})

    def get_workflow(self, request: Resource) -> Resource:
        """`request`: name, revisionId (the latest without)."""
        name = str(request.get("name"))
        parse_name(WORKFLOW_NAME, name, "workflow name")
        wanted = request.get("revisionId")
        with self._lock:
            revisions = self._revisions(name)
            if not wanted:
                return revisions[-1]
            for revision in revisions:
                if revision["revisionId"] == wanted:
                    return _shown(revision, revisions[-1])
        raise not_found(f"{name}@{wanted}")

    def list_workflows(self, request: Resource) -> Resource:
        """`request`: parent (location `-` for all), pageSize (500, at most 1000), pageToken, filter, orderBy."""
        place = parse_name(LOCATION_NAME, request.get("parent"), "parent")
        with self._lock:
            latest = [revisions[-1] for revisions in self._workflows.values()]
        here = [workflow for workflow in latest if _within(workflow["name"], place)]
        test = filters.compile_filter(request.get("filter"), FIELDS)
        ordered = filters.sorted_by([item for item in here if test(item)], request.get("orderBy"), FIELDS, "name")
        return _listed("workflows", page(ordered, request, default=500, most=1000))

    def list_workflow_revisions(self, request: Resource) -> Resource:
        """Newest first. `request`: name, pageSize (20, at most 100), pageToken."""
        name = str(request.get("name"))
        parse_name(WORKFLOW_NAME, name, "workflow name")
        with self._lock:
            revisions = self._revisions(name)
        newest_first = [_shown(revision, revisions[-1]) for revision in reversed(revisions)]
        return _listed("workflows", page(newest_first, request, default=20, most=100))

    def delete_workflow(self, request: Resource) -> Resource:
        """Operation -> Empty. Its executions are cancelled and deleted. `request`: name."""
        name = str(request.get("name"))
        parse_name(WORKFLOW_NAME, name, "workflow name")
        with self._lock:
            for revision in self._revisions(name):
                self._journal.delete("workflow", f"{name}@{revision['revisionId']}")
                self._compiled.pop((name, revision["revisionId"]), None)
            del self._workflows[name]
        self.deleted(name)
        with self._lock:
            return self._operation("delete", name, response={"@type": EMPTY_TYPE, "value": {}})

    def get_operation(self, request: Resource) -> Resource:
        with self._lock:
            name = str(request.get("name"))
            if name not in self._operations:
                raise not_found(name)
            return self._operations[name]

    def list_operations(self, request: Resource) -> Resource:
        place = parse_name(LOCATION_NAME, str(request.get("name")).removesuffix("/operations"), "name")
        if request.get("filter"):
            raise ApiError("UNIMPLEMENTED", "a filter of operations is not emulated; see LIMITATIONS.md")
        with self._lock:
            here = [operation for operation in self._operations.values() if _within(operation["name"], place)]
        return _listed("operations", page(here[::-1], request, default=100, most=1000))

    def delete_operation(self, request: Resource) -> Resource:
        with self._lock:
            if self._operations.pop(str(request.get("name")), None) is None:
                raise not_found(str(request.get("name")))
        return {}

    # --- parts

    def _operation(self, verb: str, target: str, **outcome: Any) -> Resource:
        place = parse_name(WORKFLOW_NAME, target, "target")
        now = self._clock.now()
        number = f"operation-{int(now * 1000)}-{self._ids.getrandbits(48):012x}-{self._ids.getrandbits(32):08x}"
        operation: Resource = {
            "name": f"projects/{place['project']}/locations/{place['location']}/operations/{number}",
            "metadata": {
                "@type": METADATA_TYPE,
                "createTime": rfc3339(now),
                "endTime": rfc3339(now),
                "target": target,
                "verb": verb,
                "apiVersion": "v1",
            },
            "done": True,
            **outcome,
        }
        self._operations[operation["name"]] = operation
        while len(self._operations) > OPERATIONS_KEPT:
            del self._operations[next(iter(self._operations))]
        return operation

    def _mask(self, mask: str | None) -> Iterable[str]:
        if not mask or mask == "*":
            return sorted(_INPUT)
        fields = [_camel(field.strip()) for field in mask.split(",")]
        for field in fields:
            if field in _UNEMULATED:
                refuse_unemulated({field: True}, _UNEMULATED)
            if field not in _INPUT:
                raise invalid(f"updateMask: {field!r} is none of {', '.join(sorted(_INPUT))}")
        return fields

    def _checked(self, workflow: object) -> Resource:
        """The fields a caller may set, checked. Raises ApiError."""
        given = check_fields(workflow, _KNOWN, "workflow")
        refuse_unemulated(given, _UNEMULATED)
        if len(given.get("description", "")) > 1000:
            raise invalid("description: at most 1000 characters")
        if "labels" in given:
            check_labels(given["labels"])
        check_choice(given.get("callLogLevel"), CALL_LOG_LEVELS, "callLogLevel")
        check_choice(given.get("executionHistoryLevel"), HISTORY_LEVELS, "executionHistoryLevel")
        _check_environment(given.get("userEnvVars", {}))
        return {key: value for key, value in given.items() if key in _INPUT and value not in (None, "", {})}


def service_account(project: str, account: str | None) -> str:
    """The full resource name; without an account the project's Compute Engine default."""
    email = (account or f"{project_number(project)}-compute@developer.gserviceaccount.com").rpartition("/")[2]
    return f"projects/{project}/serviceAccounts/{email}"


def project_number(project: str) -> str:
    """A stand-in for the number that Google gives a project: always the same twelve digits for the same id."""
    digest = hashlib.sha256(project.encode()).digest()
    return str(100_000_000_000 + int.from_bytes(digest[:8], "big") % 900_000_000_000)


def _check_environment(variables: object) -> None:
    """At most 20 of 4 KiB; no empty name, none that begins with GOOGLE or WORKFLOWS (Workflow.user_env_vars)."""
    if not isinstance(variables, dict):
        raise invalid("userEnvVars has to be a map of strings")
    if len(variables) > ENVIRONMENT_LIMIT:
        raise invalid(f"userEnvVars: {len(variables)} variables, at most {ENVIRONMENT_LIMIT} are allowed")
    for key, value in variables.items():
        if not key or key.startswith(("GOOGLE", "WORKFLOWS")):
            raise invalid(f"userEnvVars: {key!r} may not be empty nor begin with GOOGLE or WORKFLOWS")
        if not isinstance(value, str):
            raise invalid(f"userEnvVars: {key} has to be a string")
        if max(len(key.encode()), len(value.encode())) > ENVIRONMENT_VALUE_LIMIT:
            raise invalid(f"userEnvVars: {key} is longer than {ENVIRONMENT_VALUE_LIMIT} bytes")


def _shown(revision: Resource, latest: Resource) -> Resource:
    """A revision with the fields of the whole workflow as they are now."""
    own = {key: value for key, value in revision.items() if key not in _OF_WORKFLOW}
    return {**own, **{key: latest[key] for key in (*_OF_WORKFLOW, "updateTime") if key in latest}}


def _within(name: str, place: dict[str, str]) -> bool:
    _, project, _, location, *_ = name.split("/")
    return project == place["project"] and place["location"] in ("-", location)


def _camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _listed(key: str, found: tuple[list[Resource], str | None]) -> Resource:
    items, token = found
    return {key: items, **({"nextPageToken": token} if token else {})}
