"""The HTTP contract and the log: what is refused leaves no record, and no line holds a payload or a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exactly_once.contract import BODY_LIMIT
from exactly_once.errors import Refusal
from exactly_once.log import EVENTS, Log, trace_of
from proxy.main import OVERLAP
from tests.runtime.bench import Answer, Bench, Effects, Request, external, raising

SECRET = "s3cr3t-token"


@pytest.fixture
def firestore_kind() -> str:
    """What is refused before the first RPC is the same on every server."""
    return "embedded"


def wrong(bench: Bench, **changed: Any) -> bytes:
    return json.dumps(bench.body(**changed)).encode()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda b: b"", "malformed"),
        (lambda b: b"{", "malformed"),
        (lambda b: b"[1]", "malformed"),
        (lambda b: b"\xff\xfe", "malformed"),
        (lambda b: b'{"input": NaN}', "malformed"),
        (lambda b: b"[" * 200_000, "malformed"),
        (lambda b: b" " * (BODY_LIMIT + 1), "malformed"),
        (lambda b: wrong(b, run=None), "malformed"),
        (lambda b: wrong(b, run_id=None), "malformed"),
        (lambda b: wrong(b, run_id="0" * 64), "malformed"),
        (lambda b: wrong(b, step="other"), "wrong_step"),
        (lambda b: wrong(b, step=None), "wrong_step"),
        (lambda b: wrong(b, step=[SECRET]), "wrong_step"),
        (lambda b: wrong(b, item=""), "malformed"),
        (lambda b: wrong(b, item=7), "malformed"),
        (lambda b: wrong(b, item="é" * 751), "malformed"),
        (lambda b: wrong(b, item="\ud800"), "malformed"),
        (lambda b: wrong(b, run={**b.run().to_json(), "slot": "9999-12-31T23:59:59-14:00"}), "malformed"),
        (lambda b: wrong(b, run={**b.run().to_json(), "pipeline": "another"}), "wrong_pipeline"),
    ],
)
def test_refused_before_anything_is_asked(bench: Bench, change: Any, code: str) -> None:
    body = Effects()
    answer = bench.call(external(body), raw=change(bench))
    assert (answer.status, answer.code) == (400, code)
    assert bench.rpcs == []
    assert len(body) == 0
    assert [event["event"] for event in bench.events] == ["step.refused"]
    assert not list(bench.direct.collection(f"{bench.pipeline}_runs").list_documents())


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_only_post(bench: Bench, method: str) -> None:
    assert bench.call(external(Effects()), method=method).status == 400


def test_body_without_a_length(bench: Bench) -> None:
    """A chunked request says no length: no more than the limit is read."""

    class Chunked(Request):
        @property
        def content_length(self) -> None:
            return None

    from exactly_once.steps import serve

    request = Chunked("POST", {}, b" " * (BODY_LIMIT + 1))
    assert serve(external(Effects()), bench.runtime(), request)[1] == 400
    request = Chunked("POST", {}, wrong(bench))
    assert serve(external(Effects()), bench.runtime(), request)[1] == 200


def test_answer_of_success(bench: Bench) -> None:
    answer = bench.call(external(Effects(lambda run, payload: [1.50])), item="x")
    expected = {"run_id": bench.run().run_id, "step": "charge", "item": "x", "replayed": False, "result": [1.5]}
    assert answer.json == expected
    assert "item" not in bench.call(external(Effects())).json


def test_no_status_is_503() -> None:
    assert set(Refusal.STATUS.values()) == {400, 409, 422, 500}


def test_lines_are_cloud_loggings(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    log = Log().about(pipeline="shop", run_id="a" * 64, step="charge", item=None, trace="projects/p/traces/t")
    log("step.completed", attempt=1)
    line = json.loads(capsys.readouterr().out)
    assert line["severity"] == "NOTICE"
    assert line["event"] == "step.completed"
    assert line["logging.googleapis.com/trace"] == "projects/p/traces/t"
    assert line["logging.googleapis.com/labels"] == {"run": "a" * 63, "step": "charge", "pipeline": "shop"}
    assert "item" not in line
    assert "trace" not in line


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        ({"X-Cloud-Trace-Context": "0123456789ABCDEF0123456789abcdef/123;o=1"}, "0123456789abcdef0123456789abcdef"),
        ({"x-cloud-trace-context": "0123456789abcdef0123456789abcdef"}, "0123456789abcdef0123456789abcdef"),
        ({"TraceParent": f"00-{'a' * 32}-{'b' * 16}-01"}, "a" * 32),
        ({"X-Cloud-Trace-Context": "nonsense"}, None),
        ({}, None),
    ],
)
def test_trace(headers: dict[str, str], trace: str | None) -> None:
    assert trace_of(headers, "p") == (trace and f"projects/p/traces/{trace}")


def test_no_payload_and_no_secret_in_the_log(bench: Bench) -> None:
    """Whatever passes through: input, result, the text of an unknown exception."""
    payload = {"card": SECRET}
    answers: list[Answer] = []
    for key, body in {
        "fine": lambda run, payload: payload,
        "bug": raising(ValueError(f"cannot use {SECRET}")),
        "bad result": lambda run, payload: {SECRET},
        "bad key": lambda run, payload: {(SECRET,): 1},
    }.items():
        bench.key = key
        answers += [bench.call(external(body, "hold"), payload), bench.call(external(body), {"other": SECRET})]
    assert [answer.status for answer in answers] == [200, 422] * 1 + [422, 422] * 3
    assert SECRET not in json.dumps(bench.events)
    assert SECRET not in json.dumps([answer.text for answer in answers[1:]])


def test_traceback_of_a_body_names_the_line(bench: Bench) -> None:
    def buggy(run: Any, payload: Any) -> Any:
        return payload["missing"]

    bench.call(external(buggy), {})
    line = bench.seen("step.error")[0]
    assert "in buggy" in line["traceback"]
    assert line["reason"] == "KeyError"
    assert line["severity"] == "ERROR"


def test_every_event_is_documented() -> None:
    """Each event that the code names is in the list, and each of the list is named by the code."""
    import re
    from pathlib import Path

    import exactly_once

    root = Path(exactly_once.__file__).parent
    sources = [*root.glob("*.py"), root.parent / "proxy" / "main.py"]
    text = "\n".join(source.read_text() for source in sources if source.name != "log.py")
    named = set(re.findall(r'"((?:run|step|operator)\.[a-z_]+)"', text))
    named |= {f"run.{waits.value}" for waits in OVERLAP.values()}  # named by what becomes of the slot
    assert named == set(EVENTS)
