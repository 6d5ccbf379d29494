"""HTTP calls of deployed workflows over real connections: what the server sees, and what the workflow gets back."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.emulators.clock import JumpClock
from tools.emulators.workflows.limits import RESPONSE_LIMIT
from tools.emulators.workflows.transport import HttpTransport

from .conftest import Desk
from .test_transport import Seen, ok, serving


@pytest.fixture
def online(tmp_path: Path, clock: JumpClock) -> Iterator[Desk]:
    """A desk whose calls really go out."""
    desk = Desk(tmp_path / "online", clock, transport=HttpTransport(clock))
    yield desk
    desk.close()


def call(desk: Desk, verb: str, **args: Any) -> Any:
    """The result of one call, or the error it raised."""
    steps = [
        {
            "send": {
                "try": {"call": f"http.{verb}", "args": args, "result": "answer"},
                "except": {"as": "e", "steps": [{"give": {"return": "${e}"}}]},
            }
        },
        {"done": {"return": "${answer}"}},
    ]
    ended = desk.run(desk.deploy(json.dumps({"main": {"steps": steps}})))
    return json.loads(ended.result)


def test_json_goes_and_comes(online: Desk) -> None:
    answer = ok(b'{"n": 1.5}', "Content-Type: application/json; charset=utf-8", "X-Answer: Yes")
    with serving(lambda seen: answer) as wire:
        result = call(
            online, "post", url=f"{wire.url}/p", query={"q": ["a", "b"]}, headers={"X-Ask": "1"}, body={"a": [1]}
        )
    [seen] = wire.seen
    assert seen.line == "POST /p?q=a&q=b HTTP/1.1"
    assert json.loads(seen.body) == {"a": [1]}
    assert seen.headers["content-type"] == "application/json; charset=utf-8"
    assert seen.headers["user-agent"].endswith("GoogleCloudWorkflows; (+https://cloud.google.com/workflows/docs)")
    assert seen.headers["x-ask"] == "1"
    assert "authorization" not in seen.headers
    assert (result["code"], result["body"], result["headers"]["x-answer"]) == (200, {"n": 1.5}, "Yes")


def test_oidc_for_the_audience_asked_for(online: Desk) -> None:
    with serving(lambda seen: ok()) as wire:
        call(online, "get", url=f"{wire.url}/deep/path", auth={"type": "OIDC", "audience": wire.url})
    token = wire.seen[0].headers["authorization"].removeprefix("Bearer ")
    claims = online.server.tokens.verify(token, wire.url, online.clock.now())
    assert claims["email"].endswith("-compute@developer.gserviceaccount.com")


def test_a_status_of_400_or_more_is_an_http_error(online: Desk) -> None:
    with serving(lambda seen: ok(b"later", "Content-Type: text/plain", "Retry-After: 3", status="503 No")) as wire:
        error = call(online, "get", url=wire.url)
    assert (error["tags"], error["code"], error["body"]) == (["HttpError"], 503, "later")
    assert error["headers"]["retry-after"] == "3"
    assert len(wire.seen) == 1  # no retry unless asked for


def test_the_tags_of_lost_connections(online: Desk) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        failed = call(online, "get", url=f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert failed["tags"] == ["ConnectionFailedError"]


def test_a_connection_that_breaks(online: Desk) -> None:
    with serving(lambda seen: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab") as wire:
        broken = call(online, "get", url=wire.url)
    assert broken["tags"] == ["ConnectionError"]


def test_a_response_that_is_too_large_cannot_be_caught(online: Desk) -> None:
    with serving(lambda seen: ok(b"x" * (RESPONSE_LIMIT + 1))) as wire:
        steps = [{"send": {"try": {"call": "http.get", "args": {"url": wire.url}}, "except": {"as": "e", "steps": []}}}]
        steps[0]["send"]["except"] = {"as": "e", "steps": [{"give": {"return": "caught"}}]}
        ended = online.run(online.deploy(json.dumps({"main": {"steps": steps}})))
    assert ended.state.name == "FAILED"
    assert json.loads(ended.error.payload)["tags"] == ["ResourceLimitError"]


def test_retries_follow_on_the_clock(online: Desk) -> None:
    """Five retries by the library's policy: each really arrives, and the waits between them are skipped."""

    def answer(seen: Seen) -> bytes:
        return ok(b"", status="503 No") if len(wire.seen) < 6 else ok(b"at last", "Content-Type: text/plain")

    with serving(answer) as wire:
        steps = [
            {
                "send": {
                    "try": {"call": "http.get", "args": {"url": wire.url}, "result": "answer"},
                    "retry": {
                        "predicate": "${http.default_retry_predicate}",
                        "max_retries": 5,
                        "backoff": {"initial_delay": 600, "max_delay": 1200, "multiplier": 2},
                    },
                }
            },
            {"done": {"return": "${answer.body}"}},
        ]
        ended = online.run(online.deploy(json.dumps({"main": {"steps": steps}})))
    assert ended.result == '"at last"'
    assert len(wire.seen) == 6
    assert ended.duration.total_seconds() >= 600 + 4 * 1200
