"""Endpoints of `events.create_callback_endpoint`, and the requests that came in for `events.await_callback`.

An endpoint lives as long as its execution. Requests that come before the workflow waits are kept in order; each
waiting step takes one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..clock import Clock
from .errors import WorkflowError
from .resources import Resource, rfc3339
from .runtime import Stop
from .status import ApiError, not_found
from .values import Value, from_json

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")

PAYLOADS_KEPT = 100
"""Requests that one endpoint keeps unread; a further one is answered 429."""


@dataclass
class _Endpoint:
    name: str
    url: str
    method: str
    received: deque[Value] = field(default_factory=deque)
    waiters: list[threading.Event] = field(default_factory=list)


class CallbackEndpoints:
    """All endpoints of a server. Thread-safe. `root()` is the server's REST URL; `new_id()` makes ids."""

    def __init__(self, clock: Clock, root: Callable[[], str], new_id: Callable[[], str]) -> None:
        self._clock = clock
        self._root = root
        self._new_id = new_id
        self._lock = threading.Lock()
        self._endpoints: dict[str, _Endpoint] = {}

    def of(self, execution: str) -> ExecutionCallbacks:
        """What the engine gets for one execution."""
        return ExecutionCallbacks(self, execution)

    def create(self, execution: str, method: str) -> str:
        """The new endpoint's URL. Raises WorkflowError ValueError for a method that callbacks do not know."""
        if method not in METHODS:
            raise WorkflowError.of("ValueError", f"http_callback_method: {method!r} is none of {', '.join(METHODS)}")
        name = f"{execution}/callbacks/{self._new_id()}"
        endpoint = _Endpoint(name, f"{self._root()}/v1/{name}", method)
        with self._lock:
            self._endpoints[name] = endpoint
        return endpoint.url

    def deliver(self, name: str, method: str, headers: dict[str, str], query: dict[str, Any], body: bytes) -> None:
        """A request came in. Raises ApiError: NOT_FOUND (also for another method), RESOURCE_EXHAUSTED."""
        with self._lock:
            endpoint = self._endpoints.get(name)
            if endpoint is None or endpoint.method != method:
                raise not_found(name)
            if len(endpoint.received) >= PAYLOADS_KEPT:
                raise ApiError("RESOURCE_EXHAUSTED", f"{name} has {PAYLOADS_KEPT} requests that nobody has read")
            endpoint.received.append(
                {
                    "http_request": {
                        "body": _decoded(body, headers.get("content-type", "")),
                        "headers": headers,
                        "method": method,
                        "query": query,
                        "url": endpoint.url,
                    },
                    "received_time": rfc3339(self._clock.now()),
                    "type": "HTTP",
                }
            )
            if endpoint.waiters:
                endpoint.waiters.pop(0).set()

    def wait(self, url: str, seconds: float, stop: Stop) -> Value | None:
        """The next request to `url`; None if none came within `seconds` or the execution was stopped.

        Raises WorkflowError ValueError if no endpoint of this server has that URL.
        """
        until = self._clock.now() + seconds
        while True:
            woken = threading.Event()
            with self._lock:
                endpoint = self._endpoints.get(url.partition("/v1/")[2])
                if endpoint is None or endpoint.url != url:
                    raise WorkflowError.of("ValueError", f"{url} is not a callback endpoint of this execution")
                if endpoint.received:
                    return endpoint.received.popleft()
                endpoint.waiters.append(woken)
            stop.watch(woken.set)
            rang = self._clock.sleep(until - self._clock.now(), woken)
            stop.unwatch(woken.set)
            with self._lock:
                if woken in endpoint.waiters:
                    endpoint.waiters.remove(woken)
                if endpoint.received:
                    return endpoint.received.popleft()
            if not rang or stop.is_set():
                return None

    def listed(self, execution: str) -> list[Resource]:
        """Callback resources of one execution."""
        with self._lock:
            return [
                {
                    "name": endpoint.name,
                    "method": endpoint.method,
                    "waiters": str(len(endpoint.waiters)),
                    "availablePayloads": [str(payload["received_time"]) for payload in endpoint.received],
                }
                for endpoint in self._endpoints.values()
                if endpoint.name.startswith(f"{execution}/")
            ]

    def drop(self, execution: str) -> None:
        """The execution has ended, and its endpoints with it."""
        with self._lock:
            for name in [name for name in self._endpoints if name.startswith(f"{execution}/")]:
                del self._endpoints[name]


class ExecutionCallbacks:
    """The endpoints of one execution: a callback can only be waited for by the execution that made it."""

    def __init__(self, endpoints: CallbackEndpoints, execution: str) -> None:
        self._endpoints = endpoints
        self._execution = execution

    def create(self, method: str) -> str:
        return self._endpoints.create(self._execution, method)

    def wait(self, url: str, seconds: float, stop: Stop) -> Value | None:
        if f"/v1/{self._execution}/callbacks/" not in url:
            raise WorkflowError.of("ValueError", f"{url} is not a callback endpoint of this execution")
        return self._endpoints.wait(url, seconds, stop)


def _decoded(body: bytes, content_type: str) -> Value:
    """JSON as its value, other text as a string, the rest as bytes; nothing is null."""
    if not body:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    if content_type.partition(";")[0].strip().lower() == "application/json":
        try:
            return from_json(text)
        except ValueError:
            return text
    return text
