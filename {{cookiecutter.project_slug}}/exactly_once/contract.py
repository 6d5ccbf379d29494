"""The HTTP contract of a step.

POST {"run_id", "step", "item"?, "input", "run": context}
200  {"run_id", "step", "item"?, "replayed", "result"}
4xx, 500  {"error": {"code", "message"}}, the status by `Refusal.STATUS`
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .encoding import digest
from .errors import Refusal
from .identity import ITEM_LIMIT, RunContext

BODY_LIMIT = 1024 * 1024
"""Bytes of a request's body. A workflow holds 512 KiB of variables in all."""

Response = tuple[str, int, dict[str, str]]
"""Body, status, headers: what functions-framework turns into an answer."""


class HttpRequest(Protocol):
    """As much of a Flask request as the runtime needs."""

    @property
    def method(self) -> str: ...

    @property
    def headers(self) -> Any: ...

    @property
    def content_length(self) -> int | None: ...

    @property
    def stream(self) -> Any: ...


@dataclass(frozen=True)
class StepRequest:
    """A well-formed request to this step."""

    context: RunContext
    step: str
    item: str | None
    payload: Any
    """The caller's `input`."""
    digest: str
    """Of `payload`."""


@dataclass(frozen=True)
class Success:
    """A recorded result: its JSON text, and whether it was recorded before this request."""

    text: str
    replayed: bool


def read_body(request: HttpRequest) -> bytes:
    """Raises Refusal (malformed) when it is too large; no more than the limit is read."""
    if (request.content_length or 0) > BODY_LIMIT:
        raise _refused("malformed", f"the body has {request.content_length} bytes, at most {BODY_LIMIT} are read")
    body: bytes = request.stream.read(BODY_LIMIT + 1)
    if len(body) > BODY_LIMIT:
        raise _refused("malformed", f"the body has more than {BODY_LIMIT} bytes")
    return body


def parse(method: str, body: bytes, step: str, pipeline: str) -> StepRequest:
    """Raises Refusal: malformed, or wired to the wrong step or pipeline."""
    if method != "POST":
        raise _refused("malformed", f"{method} is not served: a step takes a POST from run_step of the workflow")
    try:
        value = json.loads(body)
        if not isinstance(value, dict):
            raise _refused("malformed", "the body has to be a JSON object")
        context = RunContext.from_json(value.get("run"))
        item = item_name(value.get("item"))
        payload_digest = digest(value.get("input"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError, JSONDecodeError, NaN
        raise _refused("malformed", f"the body is not JSON: {str(error)[:200]}") from error
    if value.get("run_id") != context.run_id:
        raise _refused("malformed", "run_id and run.run_id have to be the same 64 hex digits")
    if value.get("step") != step:
        asked = str(value.get("step"))[:40]
        raise _refused("wrong_step", f"this is step {step!r}, the call is for {asked!r}: see the workflow's STEP_URLS")
    if context.pipeline != pipeline:
        raise _refused("wrong_pipeline", f"this step is of pipeline {pipeline!r}, the run of {context.pipeline[:40]!r}")
    return StepRequest(context, step, item, value.get("input"), payload_digest)


def _refused(code: str, message: str) -> Refusal:
    return Refusal(code, message, "step.refused")


def item_name(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise _refused("malformed", "'item' has to be a string that is not empty, or left out")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise _refused("malformed", "'item' holds a lone surrogate, which is not text") from error
    if size > ITEM_LIMIT:
        raise _refused("malformed", f"'item' is longer than {ITEM_LIMIT} bytes")
    return value


def success(request: StepRequest, outcome: Success) -> Response:
    """The recorded text stands in the answer as it is, so that a replay is equal byte for byte."""
    about: dict[str, Any] = {"run_id": request.context.run_id, "step": request.step}
    if request.item is not None:
        about["item"] = request.item
    head = json.dumps({**about, "replayed": outcome.replayed})
    return f'{head[:-1]}, "result": {outcome.text}}}', 200, {"Content-Type": "application/json"}


def refusal(error: Refusal) -> Response:
    return as_json(error.status, {"error": {"code": error.code, "message": error.message}})


def as_json(status: int, value: Mapping[str, Any]) -> Response:
    return json.dumps(value), status, {"Content-Type": "application/json"}
