"""Module http: requests, answers, and the errors they become."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

from .. import limits
from ..errors import TransportError, WorkflowError, http_error, limit_error, type_error, value_error
from ..operators import text_of
from ..runtime import Auth, Frame, Request, Response
from ..values import Value, checked_text, from_json, to_json, type_name
from .registry import ABSENT, function, mapping, number, text

USER_AGENT = "GoogleCloudWorkflows; (+https://cloud.google.com/workflows/docs)"
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")

_JSON = re.compile(r"application/([^;\s]+\+)?json\s*(;.*)?", re.IGNORECASE)
_TEXT = re.compile(
    r"(text/.*|application/([^;\s]+\+)?(xml|x-www-form-urlencoded|javascript|yaml)\s*(;.*)?)", re.IGNORECASE
)
_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
_AUTH_KEYS = {"type", "audience", "scope", "scopes"}
_REFUSED = {
    "private_service_name": "calls into a VPC network are not emulated: call the service by its URL",
    "ca_certificate": "certificates of one's own are not emulated: call the service by http",
}


def _register(method: str, *, body: bool) -> None:
    params = ("url", "timeout?", *(("body?",) if body else ()), "headers?", "query?", "auth?", *_unsupported())

    @function(f"http.{method.lower()}", *params, blocking=True, refused=_REFUSED)
    def call(frame: Frame, *args: Value) -> Value:
        return _send(frame, method, dict(zip((name.rstrip("?") for name in params), args, strict=True)))


def _unsupported() -> tuple[str, ...]:
    return tuple(f"{name}?" for name in _REFUSED)


for _method, _has_body in (("GET", False), ("POST", True), ("PUT", True), ("PATCH", True), ("DELETE", True)):
    _register(_method, body=_has_body)


@function(
    "http.request",
    *("method", "url", "timeout?", "body?", "headers?", "query?", "auth?"),
    *_unsupported(),
    blocking=True,
    refused=_REFUSED,
)
def request(frame: Frame, method: Value, *args: Value) -> Value:
    name = text("method", method).upper()
    if name not in METHODS:
        raise value_error(f"unknown method {method!r}: one of {', '.join(METHODS)}")
    return _send(frame, name, dict(zip(("url", "timeout", "body", "headers", "query", "auth"), args, strict=False)))


def _send(frame: Frame, method: str, args: dict[str, Any]) -> Value:
    """The answer's body, code and headers. Raises HttpError for 400 and above, and what the transport reports."""
    given = {name: value for name, value in args.items() if value is not ABSENT and value is not None}
    headers = _headers(given.get("headers", {}))
    body = _body(given["body"], headers) if "body" in given else None
    agent = headers.get("user-agent")
    headers["user-agent"] = f"{agent} {USER_AGENT}" if agent else USER_AGENT
    outgoing = Request(
        method,
        _url(given.get("url")),
        headers,
        _query(given.get("query", {})),
        body,
        _timeout(given.get("timeout", limits.HTTP_TIMEOUT)),
        _auth(given["auth"]) if "auth" in given else None,
    )
    try:
        answer = frame.run.world.transport.request(outgoing)
    except TransportError as error:
        raise WorkflowError.of(error.tag, str(error)) from error
    return _decoded(answer)


def _url(value: Value) -> str:
    url = text("url", value)
    if not re.match("https?://[^/]", url, re.IGNORECASE):
        raise value_error(f"{url!r} is no URL of http or https")
    return url


def _timeout(value: Value) -> float:
    seconds = float(number("timeout", value))
    if not 0 < seconds <= limits.HTTP_TIMEOUT_LIMIT:
        raise value_error(f"timeout {value} is not between 0 and {limits.HTTP_TIMEOUT_LIMIT:g} seconds")
    return seconds


def _headers(value: Value) -> dict[str, str]:
    """By lower-case name."""
    return {name.lower(): text_of(item) for name, item in mapping("headers", value).items()}


def _query(value: Value) -> dict[str, str | list[str]]:
    """A list repeats its parameter."""
    items = mapping("query", value).items()
    return {name: [text_of(one) for one in item] if type(item) is list else text_of(item) for name, item in items}


def _auth(value: Value) -> Auth:
    options = mapping("auth", value)
    kind = text("auth.type", options.get("type"))
    if kind not in ("OIDC", "OAuth2") or not set(options) <= _AUTH_KEYS:
        raise value_error("auth takes type OIDC or OAuth2, with audience, or scopes")
    audience = options.get("audience")
    scopes = options.get("scopes", options.get("scope", []))
    names = scopes if type(scopes) is list else re.split(r"[\s,]+", text("auth.scope", scopes))
    return Auth(kind, None if audience is None else text("auth.audience", audience), tuple(map(text_of, names)))


def _body(value: Value, headers: dict[str, str]) -> bytes:
    """Bytes go as they are, a string too when its content type is not JSON; all else as JSON."""
    kind = headers.get("content-type")
    if type(value) is bytes:
        return value
    if kind is None:
        headers["content-type"] = "application/json; charset=utf-8"
    elif kind.lower().startswith("application/x-www-form-urlencoded") and type(value) is dict:
        return _form(value).encode()
    elif not _JSON.fullmatch(kind):
        if type(value) is not str:
            raise type_error(f"a body of type {type_name(value)} can only be sent as JSON, not as {kind}")
        return value.encode()
    return to_json(value).encode()


def _form(value: dict[str, Value]) -> str:
    return urllib.parse.urlencode({name: text_of(item) for name, item in value.items()})


def _decoded(answer: Response) -> Value:
    if len(answer.body) > limits.RESPONSE_LIMIT:
        raise limit_error(f"the response is larger than {limits.RESPONSE_LIMIT} bytes")
    headers: dict[str, Value] = {name.lower(): value for name, value in answer.headers.items()}
    body = _content(answer.body, str(headers.get("content-type", "")))
    if answer.code >= 400:
        raise http_error(answer.code, headers, body)
    return {"body": body, "code": answer.code, "headers": headers}


def _content(body: bytes, kind: str) -> Value:
    """JSON parsed, text as a string, anything else as bytes; JSON that is none as a string."""
    charset = _CHARSET.search(kind)
    encoding = charset.group(1) if charset else "utf-8"
    if _JSON.fullmatch(kind.strip()):
        try:
            return from_json(body) if body else None
        except (ValueError, RecursionError):
            return _text(body, encoding)
    if _TEXT.fullmatch(kind.strip()) or not kind:
        return _text(body, encoding)
    return body


def _text(body: bytes, encoding: str) -> Value:
    try:
        return checked_text(body.decode(encoding))
    except (LookupError, UnicodeError):
        return body
