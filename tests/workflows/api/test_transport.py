"""The transport against a server of raw sockets, so that every way a call can end is really on the wire."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.emulators.clock import JumpClock, OffsetFile, SystemClock
from tools.emulators.tokens import Tokens
from tools.emulators.workflows.errors import ConnectionBroken, ConnectionFailed, ResponseTooLarge, TimedOut
from tools.emulators.workflows.limits import RESPONSE_LIMIT
from tools.emulators.workflows.runtime import Auth, Request, Response
from tools.emulators.workflows.transport import Authorized, HttpTransport, with_query

TOKENS = Tokens(b"a secret of the laptop, thirty-two bytes or more")
EMAIL = "workflow@p.iam.gserviceaccount.com"


class Seen(NamedTuple):
    """A request as it came over the wire; header names in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes


class Wire:
    """Answers each connection's request with the bytes that `answer` gives; b"" closes the connection at once."""

    def __init__(self, answer: Callable[[Seen], bytes]) -> None:
        self.seen: list[Seen] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            line = file.readline().decode().strip()
            headers = {}
            while header := file.readline().decode().strip():
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            seen = Seen(line, headers, file.read(int(headers.get("content-length", 0))))
            self.seen.append(seen)
            connection.sendall(self._answer(seen))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def serving(answer: Callable[[Seen], bytes]) -> Iterator[Wire]:
    wire = Wire(answer)
    try:
        yield wire
    finally:
        wire.close()


@pytest.fixture
def transport() -> Iterator[HttpTransport]:
    made = HttpTransport(SystemClock())
    yield made
    made.close()


def ok(body: bytes = b"{}", *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def call(url: str, method: str = "GET", body: bytes | None = None, auth: Auth | None = None, **more: str) -> Request:
    return Request(method, url, {"user-agent": "GoogleCloudWorkflows", **more}, {}, body, 300.0, auth)


def test_what_goes_out_is_what_was_asked_for(transport: HttpTransport) -> None:
    with serving(
        lambda seen: ok(b"\x00\x01", "X-Two: a", "X-Two: b", "Content-Type: application/octet-stream")
    ) as wire:
        request = Request(
            "PATCH", f"{wire.url}/a?x=1", {"X-Mine": "yes"}, {"q": ["1", "2 3"], "é": "ü&"}, b"\xff\x00", 300.0, None
        )
        answer = transport.request(request)
    [seen] = wire.seen
    assert seen.line == "PATCH /a?x=1&q=1&q=2+3&%C3%A9=%C3%BC%26 HTTP/1.1"
    assert seen.body == b"\xff\x00"
    assert seen.headers["x-mine"] == "yes"
    assert "authorization" not in seen.headers
    assert "user-agent" not in seen.headers
    assert answer == Response(
        200, {"content-length": "2", "x-two": "a, b", "content-type": "application/octet-stream"}, b"\x00\x01"
    )


@pytest.mark.parametrize(
    ("url", "result"),
    [
        ("http://h/p", "http://h/p?a=1&b=x&b=y"),
        ("http://h/p?z=0#part", "http://h/p?z=0&a=1&b=x&b=y#part"),
        ("http://h/p?", "http://h/p?a=1&b=x&b=y"),
    ],
)
def test_query_lists(url: str, result: str) -> None:
    assert with_query(url, {"a": "1", "b": ["x", "y"]}) == result
    assert with_query(url, {}) == url


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oh"])
def test_a_status_is_an_answer(transport: HttpTransport, status: str) -> None:
    with serving(lambda seen: ok(b"no", status=status)) as wire:
        assert transport.request(call(wire.url)).code == int(status[:3])


def test_a_compressed_answer_is_unpacked(transport: HttpTransport) -> None:
    with serving(lambda seen: ok(gzip.compress(b"text"), "Content-Encoding: gzip")) as wire:
        assert transport.request(call(wire.url)).body == b"text"


def test_redirects_are_followed(transport: HttpTransport) -> None:
    def answer(seen: Seen) -> bytes:
        if seen.line.split()[1] == "/kept":
            return ok(b"", "Location: /there", status="307 Temporary Redirect")
        if seen.line.split()[1] == "/seen":
            return ok(b"", "Location: /there", status="303 See Other")
        return ok(b"here")

    with serving(answer) as wire:
        assert transport.request(call(f"{wire.url}/kept", "POST", b"body")).body == b"here"
        assert transport.request(call(f"{wire.url}/seen", "POST", b"body")).body == b"here"
    assert [(seen.line.split()[0], seen.body) for seen in wire.seen] == [
        ("POST", b"body"),
        ("POST", b"body"),
        ("POST", b"body"),
        ("GET", b""),
    ]


def test_a_token_does_not_follow_a_redirect_to_another_host(transport: HttpTransport) -> None:
    with serving(lambda seen: ok()) as other:
        with serving(lambda seen: ok(b"", f"Location: {other.url}", status="302 Found")) as wire:
            authorized = Authorized(transport, TOKENS, EMAIL, SystemClock())
            authorized.request(call(wire.url, auth=Auth("OIDC", wire.url)))
    assert "authorization" in wire.seen[0].headers
    assert "authorization" not in other.seen[0].headers


def test_a_redirect_without_end_is_a_broken_connection(transport: HttpTransport) -> None:
    with serving(lambda seen: ok(b"", "Location: /", status="302 Found")) as wire:
        with pytest.raises(ConnectionBroken, match="redirects"):
            transport.request(call(wire.url))


def test_nobody_listens_no_name_no_http(transport: HttpTransport) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for url in (
            f"http://127.0.0.1:{unused.getsockname()[1]}",
            "http://no.such.host.invalid",
            "ftp://x",
            "http://[",
        ):
            with pytest.raises(ConnectionFailed):
                transport.request(call(url))


def test_a_header_that_cannot_be_sent_never_connects(transport: HttpTransport) -> None:
    with serving(lambda seen: ok()) as wire:
        with pytest.raises(ConnectionFailed):
            transport.request(call(wire.url, bad="a\nb"))
    assert [seen for seen in wire.seen if seen.line] == []


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"not http at all\r\n\r\n"]
)
def test_a_connection_that_breaks(transport: HttpTransport, answer: bytes) -> None:
    with serving(lambda seen: answer) as wire:
        with pytest.raises(ConnectionBroken):
            transport.request(call(wire.url))
    assert len(wire.seen) == 1  # at most once: nothing is sent again


def test_the_answer_may_have_two_mebibytes(transport: HttpTransport) -> None:
    with serving(lambda seen: ok(b"x" * RESPONSE_LIMIT)) as wire:
        assert len(transport.request(call(wire.url)).body) == RESPONSE_LIMIT
    with serving(lambda seen: ok(b"x" * (RESPONSE_LIMIT + 1))) as wire:
        with pytest.raises(ResponseTooLarge):
            transport.request(call(wire.url))


def test_a_time_out_is_on_the_clock(tmp_path: Path) -> None:
    """The server never answers; five minutes pass at once, since nothing is at work."""
    release = threading.Event()

    def answer(seen: Seen) -> bytes:
        release.wait()
        return b""

    clock = JumpClock(OffsetFile(tmp_path / "offset"))
    transport = HttpTransport(clock, marks=lambda url: True)
    before = clock.now()
    try:
        with serving(answer) as wire, clock.busy():
            with pytest.raises(TimedOut, match="within 300 s"):
                transport.request(call(wire.url))
        assert clock.now() - before >= 300.0
    finally:
        release.set()
        transport.close()
        clock.stop()


def test_the_mark_is_handed_over_to_a_server_that_marks(tmp_path: Path) -> None:
    """Off while the server works, on again until the caller has the answer."""
    clock = JumpClock(OffsetFile(tmp_path / "offset"), quiet=60)
    transport = HttpTransport(clock, marks=lambda url: True)
    seen_off = threading.Event()

    def answer(seen: Seen) -> bytes:
        for _ in range(2000):
            if clock.in_flight() == 0:
                seen_off.set()
                break
            clock_tick.wait(0.005)
        return ok()

    clock_tick = threading.Event()
    try:
        with serving(answer) as wire:
            assert transport.request(call(wire.url)).code == 200
        assert seen_off.is_set()
        assert clock.in_flight() == 0
    finally:
        transport.close()
        clock.stop()


def test_time_stands_while_a_stranger_works(tmp_path: Path) -> None:
    """A server that marks nothing on the clock is given the time it takes: no jump to the time-out."""
    clock = JumpClock(OffsetFile(tmp_path / "offset"))
    transport = HttpTransport(clock)
    marks = []

    def answer(seen: Seen) -> bytes:
        marks.append(clock.in_flight())
        return ok()

    try:
        with serving(answer) as wire, clock.busy():
            transport.request(call(wire.url))
        assert marks == [1]
        assert clock.in_flight() == 0
    finally:
        transport.close()
        clock.stop()


def test_closing_breaks_a_call_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    arrived, release = threading.Event(), threading.Event()
    transport = HttpTransport(SystemClock())
    errors: list[Exception] = []

    def answer(seen: Seen) -> bytes:
        arrived.set()
        release.wait()
        return b""

    def use(url: str) -> None:
        try:
            transport.request(call(url))
        except ConnectionBroken as error:
            errors.append(error)

    with serving(answer) as wire:
        user = threading.Thread(target=use, args=(wire.url,))
        user.start()
        assert arrived.wait(10)
        transport.close()
        user.join()
        release.set()
    assert len(errors) == 1
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "workflows-http"]
    with pytest.raises(ConnectionFailed, match="stopping"):
        transport.request(call("http://127.0.0.1:1"))


def test_oidc_asks_for_the_audience_and_defaults_to_the_url(transport: HttpTransport) -> None:
    clock = SystemClock()
    with serving(lambda seen: ok()) as wire:
        authorized = Authorized(transport, TOKENS, EMAIL, clock)
        authorized.request(call(f"{wire.url}/path", auth=Auth("OIDC", "https://asked.for")))
        authorized.request(call(f"{wire.url}/path", auth=Auth("OIDC")))
        authorized.request(call(f"{wire.url}/path", auth=Auth("OAuth2", scopes=("a", "b"))))
        authorized.request(call(f"{wire.url}/path"))
    asked, default, oauth, none = (seen.headers.get("authorization", "") for seen in wire.seen)
    assert TOKENS.verify(asked.removeprefix("Bearer "), "https://asked.for", clock.now())["email"] == EMAIL
    assert TOKENS.verify(default.removeprefix("Bearer "), f"{wire.url}/path", clock.now())["email"] == EMAIL
    assert TOKENS.verify(oauth.removeprefix("Bearer ya29."), "a b", clock.now())["email"] == EMAIL
    assert none == ""
