"""Google's APIs as far as the real gcloud needs them to deploy: it records every request and keeps what was made.

Operations are done at once. The real gcloud is pointed here by `environment`; it reaches the server as its HTTP proxy.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

APIS = (
    "CLOUDSCHEDULER WORKFLOWS WORKFLOWEXECUTIONS FIRESTORE IAM CLOUDRESOURCEMANAGER SERVICEUSAGE RUN CLOUDBUILD "
    "ARTIFACTREGISTRY STORAGE CLOUDBILLING LOGGING MONITORING SECRETMANAGER"
).split()
NUMBER = "123456789012"


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class NotThereError(Exception):
    """A 404."""


class Google:
    """The server; `asked` is every request, `resources` what a path holds."""

    def __init__(self, project: str = "shop-project") -> None:
        self.project = project
        self.asked: list[Asked] = []
        self.resources: dict[str, Any] = {
            f"v1/projects/{project}": {"projectId": project, "projectNumber": NUMBER, "lifecycleState": "ACTIVE"},
            f"v1/projects/{project}/billingInfo": {"billingEnabled": True},
        }
        self.enabled: set[str] = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def environment(self, folder: Path) -> dict[str, str]:
        """What makes the real gcloud come here, with its own configuration in `folder`."""
        return {
            "CLOUDSDK_CONFIG": str(folder),
            "CLOUDSDK_CORE_PROJECT": self.project,
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
            "CLOUDSDK_PROXY_TYPE": "http",
            "CLOUDSDK_PROXY_ADDRESS": "127.0.0.1",
            "CLOUDSDK_PROXY_PORT": str(self._server.server_address[1]),
            **{f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api}": "http://gcp.fake/" for api in APIS},
        }

    def told(self, method: str, path: str) -> list[Any]:
        """The bodies of every request whose path matches."""
        return [asked.body for asked in self.asked if asked.method == method and re.fullmatch(path, asked.path)]

    @property
    def writes(self) -> list[str]:
        """What was asked to be changed: method and path, without questions that happen to be POSTs."""
        return [
            f"{asked.method} {asked.path}"
            for asked in self.asked
            if asked.method != "GET" and not asked.path.endswith(":getIamPolicy")
        ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        google = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                try:
                    body = json.loads(raw) if raw.startswith(b"{") else raw
                    asked = Asked(self.command, unquote(parts.path).lstrip("/"), query, body)
                    with google._lock:
                        google.asked.append(asked)
                        status, answer = 200, google.answer(asked)
                except NotThereError as error:
                    status, answer = (
                        404,
                        {"error": {"code": 404, "message": f"{error} not found", "status": "NOT_FOUND"}},
                    )
                payload = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler

    def answer(self, asked: Asked) -> Any:
        """One request, by the form of its path. Raises NotThereError."""
        path = asked.path
        if path.endswith(("IamPolicy", ":batchEnable")):
            return self._verb(asked)
        if path.endswith("/builds:submit"):
            return self._build()
        if path.startswith(("b/", "storage/", "upload/", "resumable/")):
            return self._storage(asked)
        if "serving.knative.dev" in path:
            return self._run(asked)
        if re.fullmatch(r"v1/projects/[^/]+/services(/.*)?", path):
            return self._service(path)
        if asked.method == "GET":
            return self._get(path, asked.query)
        return self._make(asked)

    def _verb(self, asked: Asked) -> Any:
        resource, _, verb = asked.path.rpartition(":")
        if verb == "batchEnable":
            self.enabled.update(asked.body["serviceIds"])
            return self._done({})
        key = f"{resource.rpartition('/')[2]}:policy"
        if verb == "setIamPolicy":
            self.resources[key] = asked.body["policy"]
        return self.resources.get(key, {"etag": "ZXRhZw==", "version": 1})

    def _build(self) -> Any:
        """A build that is done and good."""
        kind, place = (
            "type.googleapis.com/google.devtools.cloudbuild.v1.",
            f"projects/{self.project}/locations/europe-west1",
        )
        build = {
            "id": "build-1",
            "name": f"{place}/builds/build-1",
            "projectId": self.project,
            "status": "SUCCESS",
            "logUrl": "https://log.example",
            "results": {"images": [{"name": "image", "digest": "sha256:" + "0" * 64}]},
        }
        operation = {
            "name": f"{place}/operations/build-1",
            "done": True,
            "metadata": {"@type": kind + "BuildOperationMetadata", "build": build},
            "response": {"@type": kind + "Build", **build},
        }
        self.resources[f"v1/{place}/operations/build-1"] = operation
        return {"buildOperation": operation, "baseImageUri": "python313"}

    def _service(self, path: str) -> Any:
        name = path.rpartition("/services")[2].lstrip("/")
        if name:
            return {"name": path, "state": "ENABLED" if name in self.enabled else "DISABLED", "config": {"name": name}}
        return {"services": [{"config": {"name": api}, "state": "ENABLED"} for api in sorted(self.enabled)]}

    def _storage(self, asked: Asked) -> Any:
        if asked.path.startswith(("upload/", "resumable/")):
            size = len(
                asked.body.split(b"\r\n\r\n" if b"\r\n\r\n" in asked.body else b"\n\n", 2)[2]
                .rpartition(b"\n--")[0]
                .rstrip(b"\r")
            )
            return {"bucket": "bucket", "name": asked.query.get("name", "object"), "generation": "1", "size": str(size)}
        if asked.path.endswith("/b") and asked.method == "GET":
            return {"items": [value for key, value in self.resources.items() if key.startswith("b/")]}
        if asked.method == "POST":
            self.resources[f"b/{asked.body['name']}"] = {
                **asked.body,
                "id": asked.body["name"],
                "projectNumber": NUMBER,
            }
            return self.resources[f"b/{asked.body['name']}"]
        return self._get("b/" + asked.path.partition("b/")[2], {})

    def _run(self, asked: Asked) -> Any:
        """Services of the Knative API: ready as soon as they are written."""
        if asked.method in ("POST", "PUT"):
            name = asked.body["metadata"]["name"]
            path = f"{asked.path}/{name}" if asked.method == "POST" else asked.path
            old = self.resources.get(path, {"metadata": {"generation": 0}})
            generation = old["metadata"]["generation"] + 1
            metadata = {**asked.body["metadata"], "generation": generation, "resourceVersion": "r", "selfLink": path}
            revision = f"{name}-{generation:05}-abc"
            status = {
                "observedGeneration": generation,
                "url": f"https://{name}-hash.a.run.app",
                "latestCreatedRevisionName": revision,
                "latestReadyRevisionName": revision,
                "conditions": [
                    {"type": kind, "status": "True"} for kind in ("Ready", "ConfigurationsReady", "RoutesReady")
                ],
                "traffic": [{"revisionName": revision, "percent": 100, "latestRevision": True}],
            }
            spec = {"traffic": [{"percent": 100, "latestRevision": True}], **asked.body["spec"]}
            self.resources[path] = {**asked.body, "metadata": metadata, "spec": spec, "status": status}
            return self.resources[path]
        if asked.path.endswith("/services"):
            items = [value for key, value in self.resources.items() if key.startswith(asked.path + "/")]
            return {"apiVersion": "serving.knative.dev/v1", "kind": "ServiceList", "metadata": {}, "items": items}
        return self._get(asked.path, {})

    def _get(self, path: str, query: dict[str, str]) -> Any:
        path = path.replace("projects/-/", f"projects/{self.project}/")
        if path in self.resources:
            return self.resources[path]
        kind = path.rpartition("/")[2]
        if kind in ("serviceAccounts", "metrics", "alertPolicies", "fields"):
            inside = path.replace("collectionGroups/-", "collectionGroups/[^/]+") + "/[^/]+"
            found = [value for key, value in self.resources.items() if re.fullmatch(inside, key)]
            if "ttlConfig" in query.get("filter", ""):
                found = [field for field in found if "ttlConfig" in field]
            return {{"serviceAccounts": "accounts"}.get(kind, kind): found} if found else {}
        raise NotThereError(path)

    def _make(self, asked: Asked) -> Any:
        """Create or change a resource; long-running ones answer with an operation that is done."""
        path, body = asked.path, dict(asked.body) if asked.body else {}
        kind = path.rpartition("/")[2]
        if asked.method == "POST":
            if kind == "serviceAccounts":
                email = f"{body['accountId']}@{self.project}.iam.gserviceaccount.com"
                body = {
                    **body["serviceAccount"],
                    "name": f"projects/{self.project}/serviceAccounts/{email}",
                    "email": email,
                }
                path += f"/{email}"
            elif kind == "alertPolicies":
                path += f"/{len(self.told('POST', path))}"
                body["name"] = path.partition("/")[2]
            else:
                ids = [value for key, value in asked.query.items() if key.endswith("Id")]
                path += "/" + (ids[0] if ids else body["name"].rpartition("/")[2])
        if asked.path.endswith("/databases"):
            body["deleteProtectionState"] = body.get("deleteProtectionState", "DELETE_PROTECTION_DISABLED")
        old = self.resources.get(path, {}) if asked.method == "PATCH" else {}
        body.setdefault("name", path.partition("/")[2])
        if asked.path.endswith("/jobs"):
            body["state"] = "ENABLED"
        self.resources[path] = {**old, **body}
        slow = (
            kind in ("databases", "repositories", "workflows") or "/workflows/" in path or "/collectionGroups/" in path
        )
        if not slow:
            return self.resources[path]
        parent = (
            path.partition("/collectionGroups/")[0]
            if "/collectionGroups/" in path
            else path.rpartition("/")[0].rpartition("/")[0]
        )
        return self._done(self.resources[path], parent.partition("/")[2])

    def _done(self, response: Any, parent: str = "") -> dict[str, Any]:
        """An operation below `parent` that has ended; asking for it again answers the same."""
        name = f"{parent or f'projects/{self.project}/locations/europe-west1'}/operations/{len(self.asked)}"
        operation = {"name": name, "done": True, "response": response}
        self.resources.update({f"v1/{name}": operation, f"v2/{name}": operation})
        return operation
