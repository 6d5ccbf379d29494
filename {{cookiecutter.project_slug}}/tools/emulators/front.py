"""The Cloud Run front: what stands between a caller and a function's process.

It refuses a call without a valid token for that service (401), or from an account that may not invoke it (403), starts
a process when there is none, answers 504 at the service's time-out while the body runs on, and 503 when the process
ends before it has answered. Its faults are those of the hops scheduler->proxy and workflows-><step>.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tools.emulators.clock import Clock
from tools.emulators.events import EventLog
from tools.emulators.faults import Call
from tools.emulators.hosting import Host, Part
from tools.emulators.http_faults import HttpFaults
from tools.emulators.services import Instance, Service, StartError
from tools.emulators.tokens import InvalidToken, Tokens

MAX_REQUEST = 32 * 1024 * 1024
"""Bytes of a request over HTTP/1, Cloud Run's limit."""

NOT_FORWARDED = frozenset(
    ["connection", "content-length", "date", "host", "keep-alive", "server", "transfer-encoding", "upgrade"]
)


@dataclass(frozen=True)
class Route:
    """One service behind the front. `invokers`: e-mail of an account that may call -> its name for faults."""

    service: Service
    audience: str
    invokers: Mapping[str, str]


class Front:
    """Makes the part of each service; `billing`: "request" stops a process while no caller waits for it."""

    def __init__(
        self, host: Host, faults: HttpFaults, tokens: Tokens, clock: Clock, log: EventLog, billing: str = "instance"
    ) -> None:
        self._host = host
        self._faults = faults
        self._tokens = tokens
        self._clock = clock
        self._log = log
        self._throttle = billing == "request"
        self._client: httpx.AsyncClient | None = None

    def part(self, route: Route) -> Part:
        async def serve(request: Request) -> Response | None:
            return await self._serve(route, request)

        return serve

    async def _serve(self, route: Route, request: Request) -> Response | None:
        caller = self._caller(route, request)
        if isinstance(caller, Response):
            return caller
        body = await request.body()
        if len(body) > MAX_REQUEST:
            return _refusal(413, f"a request is at most {MAX_REQUEST} bytes")

        async def deliver() -> Response:
            return await self._deliver(route.service, request, body)

        return await self._faults.carry(request, Call(caller, route.service.name, request.method, body), deliver)

    def _caller(self, route: Route, request: Request) -> str | Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() != "bearer" or not token:
                raise InvalidToken("the request has no bearer token")
            claims = self._tokens.verify(token.strip(), route.audience, self._clock.now())
        except InvalidToken as refused:
            self._log.add(route.service.name, "front.refused", severity="WARNING", status=401, reason=refused.reason)
            return _refusal(401, refused.reason)
        email = str(claims["email"])
        if email not in route.invokers:
            reason = f"{email} may not invoke {route.service.name}"
            self._log.add(route.service.name, "front.refused", severity="WARNING", status=403, reason=reason)
            return _refusal(403, reason)
        return route.invokers[email]

    async def _deliver(self, service: Service, request: Request, body: bytes) -> Response:
        """One request to one instance, and its answer or the 504."""
        self._log.add(service.name, "front.request")
        ours = self._clock.hold()
        ours.on()
        try:
            try:
                instance = await self._host.blocking(service.ensure)
            except StartError as error:
                self._log.add(service.name, "process.broken", severity="ERROR", message=str(error))
                return _refusal(503, f"{service.name} did not start")
            work = instance.begin()
            working = asyncio.ensure_future(self._work(service, instance, request, body))
            waits = True

            def ended(_: asyncio.Future[Response]) -> None:
                if waits:
                    ours.on()  # before the body's own mark goes: its answer is on the way
                instance.end(work)

            working.add_done_callback(ended)
            ours.off()
            await self._host.sleep(service.spec.timeout, until=working)
            waits = False
            instance.gave_up(self._throttle)
            if working.done():
                return working.result()
            self._log.add(service.name, "front.timeout", severity="WARNING", seconds=service.spec.timeout)
            self._host.background(self._overdue(service, working))
            return _refusal(504, f"no answer within {service.spec.timeout:g} s; the body runs on")
        finally:
            ours.off()

    async def _work(self, service: Service, instance: Instance, request: Request, body: bytes) -> Response:
        """The body's whole life, whoever still waits for it."""
        try:
            return await self._forward(instance, request, body)
        except httpx.HTTPError as error:
            self._log.add(service.name, "front.broken", severity="WARNING", reason=type(error).__name__)
            return _refusal(503, "the instance ended before it answered")

    async def _forward(self, instance: Instance, request: Request, body: bytes) -> Response:
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            self._client = httpx.AsyncClient(timeout=None, limits=limits, trust_env=False)
        headers = {name: value for name, value in request.headers.items() if name not in NOT_FORWARDED}
        headers.setdefault("x-cloud-trace-context", f"{uuid.uuid4().hex}/1;o=1")
        query = f"?{request.url.query}" if request.url.query else ""
        url = f"http://127.0.0.1:{instance.port}{request.url.path}{query}"
        answer = await self._client.request(request.method, url, content=body, headers=headers)
        kept = {name: value for name, value in answer.headers.items() if name not in NOT_FORWARDED}
        return Response(answer.content, answer.status_code, kept)

    async def _overdue(self, service: Service, working: asyncio.Future[Response]) -> None:
        answer = await working
        self._log.add(service.name, "front.late_answer", status=answer.status_code)


def _refusal(status: int, reason: str) -> Response:
    return JSONResponse({"error": {"code": status, "message": reason}}, status_code=status)
