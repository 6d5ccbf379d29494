"""Module retry, and the predicates and policies of http: which errors are worth another attempt."""

from __future__ import annotations

from ..runtime import Frame
from ..values import Function, Value
from .registry import FUNCTIONS, OBJECTS, function

_BROKEN = {"ConnectionError", "ConnectionFailedError", "TimeoutError"}


def _tags(error: Value) -> set[Value]:
    tags = error.get("tags") if type(error) is dict else None
    return {tag for tag in tags if type(tag) is str} if type(tags) is list else set()


def _code(error: Value) -> Value:
    return error.get("code") if type(error) is dict and "HttpError" in _tags(error) else None


@function("http.default_retry_predicate", "errormap")
def idempotent(frame: Frame, error: Value) -> Value:
    """For calls that may be repeated."""
    return _code(error) in (429, 502, 503, 504) or bool(_tags(error) & _BROKEN)


@function("http.default_retry_predicate_non_idempotent", "errormap")
def non_idempotent(frame: Frame, error: Value) -> Value:
    """For calls that may only be repeated when the first surely had no effect."""
    return _code(error) in (429, 503) or "ConnectionFailedError" in _tags(error)


@function("retry.always", "exception")
def always(frame: Frame, error: Value) -> Value:
    return True


@function("retry.never", "exception")
def never(frame: Frame, error: Value) -> Value:
    return False


def _named(name: str) -> Function:
    code = FUNCTIONS[name].code
    return Function(name, lambda frame, args: code(frame, *args))


BACKOFF: dict[str, Value] = {"initial_delay": 1, "max_delay": 60, "multiplier": 1.25}

for _name in tuple(FUNCTIONS):
    if _name.startswith(("http.default_retry_", "retry.")):
        OBJECTS[_name] = _named(_name)
OBJECTS["retry.default_backoff"] = BACKOFF
OBJECTS["http.default_retry"] = {
    "predicate": OBJECTS["http.default_retry_predicate"],
    "max_retries": 5,
    "backoff": BACKOFF,
}
OBJECTS["http.default_retry_non_idempotent"] = {
    "predicate": OBJECTS["http.default_retry_predicate_non_idempotent"],
    "max_retries": 5,
    "backoff": BACKOFF,
}
