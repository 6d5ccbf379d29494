"""The APIs over REST, as gcloud and curl speak it, and the endpoints of callbacks; all on one port."""

from __future__ import annotations

import asyncio
import json
import socket
import traceback
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..clock import Clock
from .callbacks import METHODS, CallbackEndpoints
from .deployments import Deployments
from .executions import Executions
from .loop import LoopThread
from .resources import Resource
from .status import ApiError, invalid

LOCATION = "/v1/projects/{project}/locations/{location}"
WORKFLOW = LOCATION + "/workflows/{workflow}"
EXECUTION = WORKFLOW + "/executions/{execution}"

BODY_LIMIT = 2 * 1024 * 1024
"""Bytes of a request's body."""

_NUMBERS = ("pageSize", "skip")
_PARAMETERS = ("alt", "prettyPrint", "key", "fields", "quotaUser", "access_token", "$.xgafv")  # of every Google API

Service = Callable[[Resource], Resource]


class RestFace:
    """The REST server."""

    def __init__(
        self, deployments: Deployments, executions: Executions, callbacks: CallbackEndpoints, clock: Clock
    ) -> None:
        self._callbacks = callbacks
        self._clock = clock
        self._loop = LoopThread("workflows-rest")
        self._server: uvicorn.Server | None = None
        routes = [*self._workflow_routes(deployments), *self._execution_routes(executions)]
        routes.append(Route(EXECUTION + "/callbacks/{callback}", self._callback, methods=list(METHODS)))
        self._app = _Absolute(Starlette(routes=routes, exception_handlers={404: _unknown, 405: _unknown}))

    def start(self, host: str, port: int) -> str:
        """Listen; the URL. Raises OSError if the port cannot be had."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            raise OSError(f"{host}:{port} cannot be listened on: {error.strerror}") from None
        config = uvicorn.Config(
            self._app, log_config=None, lifespan="off", access_log=False, http="h11", ws="none", loop="asyncio"
        )
        self._server = uvicorn.Server(config)
        self._loop.run(self._server.serve([listener]))
        return f"http://{host}:{listener.getsockname()[1]}"

    def stop(self) -> None:
        if self._server is not None:
            self._loop.run(_hang_up(self._server)).result()
        self._loop.close()

    # --- routes

    def _workflow_routes(self, api: Deployments) -> list[Route]:
        parent, name = _names(LOCATION, "parent"), _names(WORKFLOW, "name")
        operations = LOCATION + "/operations"
        operation = operations + "/{operation}"
        return [
            self._route("GET", LOCATION + "/workflows", api.list_workflows, parent),
            self._route("POST", LOCATION + "/workflows", api.create_workflow, parent, body="workflow"),
            self._route("GET", WORKFLOW + ":listRevisions", api.list_workflow_revisions, name),
            self._route("GET", WORKFLOW, api.get_workflow, name),
            self._route("PATCH", WORKFLOW, _named_inside(api.update_workflow), name, body="workflow"),
            self._route("DELETE", WORKFLOW, api.delete_workflow, name),
            self._route("GET", operations, api.list_operations, _names(LOCATION, "name")),
            self._route("GET", operation, api.get_operation, _names(operation, "name")),
            self._route("DELETE", operation, api.delete_operation, _names(operation, "name")),
        ]

    def _execution_routes(self, api: Executions) -> list[Route]:
        parent, name = _names(WORKFLOW, "parent"), _names(EXECUTION, "name")
        inside, entry = _names(EXECUTION, "parent"), EXECUTION + "/stepEntries/{entry}"
        return [
            self._route("GET", WORKFLOW + "/executions", api.list_executions, parent),
            self._route("POST", WORKFLOW + "/executions", api.create_execution, parent, body="execution"),
            self._route("POST", EXECUTION + ":cancel", api.cancel_execution, name, body="cancel"),
            self._route("GET", EXECUTION + ":exportData", api.export_data, name),
            self._route(
                "POST", EXECUTION + ":deleteExecutionHistory", api.delete_execution_history, name, body="delete"
            ),
            self._route("GET", EXECUTION, api.get_execution, name),
            self._route("GET", EXECUTION + "/stepEntries", api.list_step_entries, inside),
            self._route("GET", entry, api.get_step_entry, _names(entry, "name")),
            self._route("GET", EXECUTION + "/callbacks", api.list_callbacks, inside),
        ]

    def _route(
        self,
        method: str,
        path: str,
        carry_out: Service,
        names: Callable[[Request], Resource],
        body: str | None = None,
    ) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                message = {**_query(request), **names(request)}
                if body is not None:
                    message[body] = await _json_body(request)
                # In a thread: what deploys or starts may take its time, and callbacks are not to wait for it.
                with self._clock.busy():
                    return JSONResponse(await asyncio.to_thread(carry_out, message))
            except ApiError as error:
                return JSONResponse(error.as_json(), error.http_status)
            except Exception:
                traceback.print_exc()
                bug = ApiError("INTERNAL", "the emulator has a bug; its traceback is in the log")
                return JSONResponse(bug.as_json(), bug.http_status)

        return Route(path, endpoint, methods=[method])

    async def _callback(self, request: Request) -> Response:
        headers: dict[str, str] = {name.lower(): value for name, value in request.headers.items()}
        try:
            self._callbacks.deliver(
                request.url.path.removeprefix("/v1/"), request.method, headers, _lists(request), await _body(request)
            )
        except ApiError as error:
            return JSONResponse(error.as_json(), error.http_status)
        return Response(status_code=200)


async def _hang_up(server: uvicorn.Server) -> None:
    """Close at once what uvicorn would close within two tenths of a second."""
    for listening in getattr(server, "servers", ()):
        listening.close()
    for connection in list(server.server_state.connections):
        connection.transport.close()


class _Absolute:
    """Lets a client use this server as its HTTP proxy: `GET http://any.host/v1/...` is `GET /v1/...`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("http://"):
            path = "/" + scope["path"].partition("://")[2].partition("/")[2]
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)


def _names(path: str, key: str) -> Callable[[Request], Resource]:
    """The request's resource name under `key`, from the parameters of `path`."""
    form = path.removeprefix("/v1/")
    return lambda request: {key: form.format(**request.path_params)}


def _named_inside(carry_out: Service) -> Service:
    """PATCH names its workflow in the path, the service expects the name inside."""

    def inner(request: Resource) -> Resource:
        workflow = request.get("workflow")
        if not isinstance(workflow, dict):
            raise invalid("workflow has to be an object")
        return carry_out({**request, "workflow": {**workflow, "name": request["name"]}})

    return inner


def _query(request: Request) -> Resource:
    """Query parameters by camelCase name; page sizes as numbers."""
    found: Resource = {}
    for name, value in request.query_params.items():
        if name in _PARAMETERS:
            continue
        head, *rest = name.split("_")
        key = head + "".join(word.capitalize() for word in rest)
        if key in _NUMBERS:
            try:
                found[key] = int(value)
            except ValueError:
                raise invalid(f"{name}: {value!r} is not a whole number") from None
        else:
            found[key] = value
    return found


def _lists(request: Request) -> dict[str, Any]:
    """Query parameters as a callback hands them on: a list if a name comes more than once."""
    found: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        found[name] = values[0] if len(values) == 1 else values
    return found


async def _body(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_LIMIT:
            raise invalid(f"the request's body is larger than {BODY_LIMIT} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _json_body(request: Request) -> object:
    body = await _body(request)
    if not body.strip():
        return {}
    try:
        return json.loads(body)
    except ValueError as error:
        raise invalid(f"Invalid JSON payload received: {error}") from None


async def _unknown(request: Request, _: Exception) -> Response:
    error = ApiError("NOT_FOUND", f"{request.method} {request.url.path} is not a method of these APIs")
    return JSONResponse(error.as_json(), error.http_status)
