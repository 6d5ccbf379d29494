"""Connector calls (`googleapis.*`) go to stand-ins: one URL a service, or the Firestore emulator.

A stand-in gets `POST <url>/<version>/<method>` with the call's arguments as one JSON object, for instance
`POST http://127.0.0.1:9100/v1/projects.topics.publish` for `googleapis.pubsub.v1.projects.topics.publish`, and answers
with the result as JSON. It answers with the final result of a long-running operation, so nothing is polled. A status
of 400 or more is the HttpError that the workflow sees. `connector_params` stays here: its `timeout` is kept to, its
`polling_policy`, `skip_polling` and `scopes` change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from .errors import TransportError, WorkflowError, http_error, type_error
from .firestore_connector import FirestoreConnector
from .runtime import Auth, Request, World
from .values import Value, from_json, to_json

TIMEOUT = 1800.0
"""Seconds that a connector call waits, when `connector_params` says nothing."""

FIRESTORE = "firestore"


class Connectors:
    """`stand_ins`: service (`pubsub`) -> root URL. `firestore`: host:port of a Firestore emulator."""

    def __init__(self, stand_ins: Mapping[str, str], firestore: str | None = None) -> None:
        self._stand_ins = {service: url.rstrip("/") for service, url in stand_ins.items()}
        self._firestore = FirestoreConnector(firestore) if firestore and FIRESTORE not in stand_ins else None

    def refusal(self, name: str) -> str | None:
        """Why a call of `name` cannot be deployed here; None if it can."""
        service, _, method = _split(name)
        if service in self._stand_ins:
            return None
        if service == FIRESTORE and self._firestore is not None:
            return self._firestore.refusal(method)
        return f"{name}: the connector of {service} has no stand-in here; give one a URL, or call the API with http.*"

    def call(self, name: str, args: dict[str, Value], world: World) -> Value:
        """The result. Raises WorkflowError: HttpError, or what became of the connection."""
        service, version, method = _split(name)
        given = dict(args)
        params = given.pop("connector_params", None) or {}
        if not isinstance(params, dict):
            raise type_error("connector_params has to be a map")
        timeout = params.get("timeout", TIMEOUT)
        if not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout <= 0:
            raise WorkflowError.of(
                "ValueError", f"connector_params.timeout has to be a number of seconds, not {timeout}"
            )
        if service not in self._stand_ins and self._firestore is not None:
            return self._firestore.call(method, given, min(float(timeout), TIMEOUT), world.clock)
        url = f"{self._stand_ins[service]}/{version}/{method}"
        return self._send(url, given, min(float(timeout), TIMEOUT), world)

    def _send(self, url: str, args: dict[str, Value], timeout: float, world: World) -> Value:
        headers = {"content-type": "application/json; charset=utf-8"}
        request = Request("POST", url, headers, {}, to_json(args).encode(), timeout, Auth("OAuth2"))
        try:
            answer = world.transport.request(request)
        except TransportError as error:
            raise WorkflowError.of(error.tag, str(error)) from None
        body = _decoded(answer.body)
        if answer.code >= 400:
            raise http_error(answer.code, dict(answer.headers), body)
        return body

    def close(self) -> None:
        if self._firestore is not None:
            self._firestore.close()


def _split(name: str) -> tuple[str, str, str]:
    """`googleapis.pubsub.v1.projects.topics.publish` -> service, version, method."""
    _, service, version, method = [*name.split(".", 3), "", "", ""][:4]
    return service, version, method


def _decoded(body: bytes) -> Value:
    if not body.strip():
        return None
    try:
        return from_json(body)
    except (ValueError, WorkflowError, json.JSONDecodeError):
        return body.decode("utf-8", "replace")
