"""HTTP as the engine's calls need it, on the emulators' clock.

A call waits on the clock while a loop thread carries it out: a time-out of half an hour passes in no time under a
clock that jumps. A connection serves one call only, so a server that closes an idle connection never looks like a call
that broke.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import urlencode

import httpx

from ..clock import Clock, Hold
from ..tokens import Tokens
from . import runtime
from .errors import ConnectionBroken, ConnectionFailed, ResponseTooLarge, TimedOut
from .limits import RESPONSE_LIMIT
from .loop import LoopThread
from .runtime import Auth, Request, Response

REDIRECTS = 10
"""Redirects that one call follows."""

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
"""The scope of an OAuth2 token that names none."""


class Transport(runtime.Transport, Protocol):
    """A transport of the engine's that can be closed."""

    def close(self) -> None: ...


class HttpTransport:
    """Real HTTP. Thread-safe.

    `marks(url)` says that the server of `url` marks its own work on the clock, as a service of the chain does; a call
    to any other holds the clock, which cannot know what happens there.
    """

    def __init__(self, clock: Clock, marks: Callable[[str], bool] = lambda url: False) -> None:
        self._clock = clock
        self._marks = marks
        self._loop = LoopThread("workflows-http")
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._closed = False

    def request(self, request: Request) -> Response:
        """The answer, whatever its status.

        Raises ConnectionFailed, ConnectionBroken, TimedOut (after `request.timeout` seconds on the clock) or
        ResponseTooLarge.
        """
        url = with_query(request.url, request.query)
        try:
            message = httpx.Request(request.method, url, headers=request.headers, content=request.body)
        except (httpx.InvalidURL, httpx.RequestError, UnicodeError, ValueError, TypeError) as error:
            raise ConnectionFailed(f"cannot send a request to {request.url!r}: {error}") from None
        mark = _Mark(self._clock.hold())
        if self._marks(url):
            message.extensions["trace"] = mark.follow
        try:
            return self._wait(self._start(message), request)
        finally:
            mark.close()

    def _start(self, message: httpx.Request) -> Future[Response]:
        try:
            return self._loop.run(self._send(message))
        except RuntimeError:
            raise ConnectionFailed("the emulator is stopping") from None

    def _wait(self, future: Future[Response], request: Request) -> Response:
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        if not self._clock.sleep(request.timeout, done):
            future.cancel()
            raise TimedOut(f"no answer from {request.url} within {request.timeout:g} s")
        try:
            return future.result()
        except CancelledError:
            raise ConnectionBroken("the emulator is stopping") from None

    async def _send(self, message: httpx.Request) -> Response:
        try:
            for _ in range(REDIRECTS + 1):
                answer = await self._client(message.url.scheme).send(message, stream=True)
                try:
                    if answer.next_request is None:
                        return Response(answer.status_code, _headers(answer), await _body(answer))
                finally:
                    await answer.aclose()
                message = answer.next_request
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise ConnectionFailed(f"cannot reach {message.url}: {_text(error)}") from None
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise ConnectionBroken(f"the connection to {message.url} broke: {_text(error)}") from None
        raise ConnectionBroken(f"{message.url}: more than {REDIRECTS} redirects")

    def _client(self, scheme: str) -> httpx.AsyncClient:
        """One client a scheme: only HTTPS pays for reading certificates. Environment proxies are not used."""
        if scheme not in self._clients:
            self._clients[scheme] = httpx.AsyncClient(
                verify=scheme == "https",
                timeout=None,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                trust_env=False,
            )
        return self._clients[scheme]

    def close(self) -> None:
        """Break the calls under way and end the thread."""
        self._loop.close()


class _Mark:
    """A call's mark on the clock. `follow` takes it off while the server marks its own work on the request."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._lock = threading.Lock()
        self._closed = False
        hold.on()

    async def follow(self, event: str, _: Any) -> None:
        """httpcore tells how far the request is."""
        with self._lock:
            if event == "http11.send_request_body.complete":
                self._hold.off()
            elif event == "http11.receive_response_headers.complete" and not self._closed:
                self._hold.on()

    def close(self) -> None:
        """The caller goes on, maybe without an answer."""
        with self._lock:
            self._closed = True
            self._hold.off()


async def _body(answer: httpx.Response) -> bytes:
    chunks, size = [], 0
    async for chunk in answer.aiter_bytes():
        size += len(chunk)
        if size > RESPONSE_LIMIT:
            raise ResponseTooLarge(f"the response of {answer.url} is larger than {RESPONSE_LIMIT} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _headers(answer: httpx.Response) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in answer.headers.multi_items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def with_query(url: str, query: Mapping[str, Any]) -> str:
    """`url` with `query` added; a list gives its key once for each element."""
    if not query:
        return url
    base, hash_sign, fragment = url.partition("#")
    joint = "" if base.endswith(("?", "&")) else "&" if "?" in base else "?"
    return f"{base}{joint}{urlencode(query, doseq=True)}{hash_sign}{fragment}"


class Authorized:
    """A transport that adds the tokens a call asks for, in the name of one service account."""

    def __init__(self, transport: Transport, tokens: Tokens, email: str, clock: Clock) -> None:
        self._transport = transport
        self._tokens = tokens
        self._email = email
        self._clock = clock

    def request(self, request: Request) -> Response:
        if request.auth is not None:
            bearer = {"authorization": f"Bearer {self._token(request.auth, request.url)}"}
            request = replace(request, headers={**request.headers, **bearer})
        return self._transport.request(request)

    def _token(self, auth: Auth, url: str) -> str:
        """OIDC: for the asked-for audience, or the URL as called. OAuth2: for the scopes."""
        if auth.type == "OIDC":
            return self._tokens.mint(auth.audience or url, self._email, self._clock.now())
        scopes = " ".join(auth.scopes or [CLOUD_PLATFORM])
        return "ya29." + self._tokens.mint(scopes, self._email, self._clock.now())
