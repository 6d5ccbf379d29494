"""Callback endpoints, called over HTTP while an execution waits, before it waits, and too late."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest

from tools.emulators.workflows.callbacks import PAYLOADS_KEPT

from .conftest import Desk

WAITING = """
main:
  params: [options]
  steps:
    - create:
        call: events.create_callback_endpoint
        args:
          http_callback_method: ${options.method}
        result: callback
    - tell:
        call: sys.log
        args:
          text: ${callback.url}
    - early:
        call: sys.sleep
        args:
          seconds: ${default(map.get(options, "early"), 0)}
    - await:
        try:
          call: events.await_callback
          args:
            callback: ${callback}
            timeout: 3600
          result: request
        except:
          as: e
          steps:
            - give:
                return: ${e.tags}
    - done:
        return: ${request}
"""


def waiting(desk: Desk, method: str = "POST", **options: object) -> tuple[str, str]:
    """An execution that waits for a callback: its name and the URL."""
    name = desk.start(desk.deploy(WAITING), json.dumps({"method": method, **options}))
    url = patiently(lambda: next((e["message"] for e in desk.logs if e["event"] == "workflow.log"), None))
    return name, url


def patiently(look: Any) -> Any:
    """What `look` gives as soon as it gives something; real time, ten seconds at most."""
    for _ in range(2000):
        found = look()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("nothing came")


def send(url: str, method: str = "POST", **more: Any) -> httpx.Response:
    with httpx.Client(trust_env=False, verify=False) as client:
        return client.request(method, url, **more)


def test_a_callback_is_received(desk: Desk) -> None:
    with desk.clock.busy():
        name, url = waiting(desk)
        answer = send(url, json={"x": [1]}, params={"a": "1", "b": ["2", "3"]}, headers={"X-Mine": "Yes"})
        assert (answer.status_code, answer.content) == (200, b"")
        result = json.loads(desk.end(name).result)
    request = result["http_request"]
    assert (request["body"], request["method"], request["url"]) == ({"x": [1]}, "POST", url)
    assert request["query"] == {"a": "1", "b": ["2", "3"]}
    assert request["headers"]["x-mine"] == "Yes"
    assert result["type"] == "HTTP"
    assert result["received_time"].endswith("Z")
    assert send(url).status_code == 404  # the execution has ended


def test_a_callback_that_comes_before_the_wait_is_kept(desk: Desk) -> None:
    with desk.clock.busy():
        name, url = waiting(desk, early=100)
        assert send(url, content="plain").status_code == 200
        for _ in range(PAYLOADS_KEPT - 1):
            assert send(url, content="more").status_code == 200
        assert send(url, content="too many").status_code == 429
    assert json.loads(desk.end(name).result)["http_request"]["body"] == "plain"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_the_method_has_to_be_the_one_asked_for(desk: Desk, method: str) -> None:
    with desk.clock.busy():
        name, url = waiting(desk, method)
        assert send(url, "POST").status_code == 404
        assert send(url + "0", method).status_code == 404
        assert send(url, method).status_code == 200
        assert json.loads(desk.end(name).result)["http_request"]["method"] == method


def test_nobody_calls(desk: Desk) -> None:
    name, _ = waiting(desk)
    ended = desk.end(name)
    assert json.loads(ended.result) == ["TimeoutError"]
    assert ended.duration.total_seconds() >= 3600


def test_cancelling_ends_the_wait(desk: Desk) -> None:
    with desk.clock.busy():
        name, url = waiting(desk)
        listed = httpx.get(f"{desk.server.rest_url}/v1/{name}/callbacks", trust_env=False).json()["callbacks"]
        assert [(item["method"], url.endswith(item["name"])) for item in listed] == [("POST", True)]
        desk.executions.cancel_execution(name=name)
        patiently(lambda: not [thread for thread in threading.enumerate() if thread.name == "execution"])
        assert send(url).status_code == 404
