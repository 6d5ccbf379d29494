"""Names, labels, times and pages: what the Workflows and the Executions API have in common.

Inside this package a resource is its REST form: a dict of JSON values with camelCase keys. Times are RFC 3339 in UTC.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .status import ApiError, invalid

Resource = dict[str, Any]

LABELS = 64
LABEL_LENGTH = 63
"""Labels of a resource, and characters of a key or a value (Execution.labels in the API's reference)."""

_SEGMENT = r"[^/]+"
LOCATION_NAME = re.compile(rf"projects/(?P<project>{_SEGMENT})/locations/(?P<location>{_SEGMENT})")
WORKFLOW_NAME = re.compile(rf"{LOCATION_NAME.pattern}/workflows/(?P<workflow>{_SEGMENT})")
EXECUTION_NAME = re.compile(rf"{WORKFLOW_NAME.pattern}/executions/(?P<execution>{_SEGMENT})")

_WORKFLOW_ID = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")


def parse_name(pattern: re.Pattern[str], name: object, what: str) -> dict[str, str]:
    """The parts of a resource name. Raises ApiError INVALID_ARGUMENT."""
    found = pattern.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise invalid(f"{what} {name!r} is not of the form {_form(pattern)}")
    return found.groupdict()


def _form(pattern: re.Pattern[str]) -> str:
    return re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", pattern.pattern)


def check_workflow_id(workflow_id: object) -> str:
    """Letters, digits, `_` and `-`, 1-64 characters, a letter first, a letter or digit last (CreateWorkflowRequest)."""
    if not isinstance(workflow_id, str) or not _WORKFLOW_ID.fullmatch(workflow_id):
        raise invalid(
            f"workflow id {workflow_id!r}: only letters, digits, underscores and hyphens, at most 64 characters, "
            "starting with a letter and ending with a letter or digit"
        )
    return workflow_id


def check_labels(labels: object) -> dict[str, str]:
    """Raises ApiError INVALID_ARGUMENT for what the API's reference does not allow."""
    if not isinstance(labels, dict):
        raise invalid("labels have to be a map of strings")
    if len(labels) > LABELS:
        raise invalid(f"{len(labels)} labels: at most {LABELS} are allowed")
    for key, value in labels.items():
        if not isinstance(value, str):
            raise invalid(f"label {key!r}: the value has to be a string")
        if not key or len(key) > LABEL_LENGTH or not all(map(_label_character, key)) or not key[0].isalpha():
            raise invalid(
                f"label key {key!r}: at most {LABEL_LENGTH} lowercase letters, digits, '_' and '-', "
                "starting with a letter"
            )
        if len(value) > LABEL_LENGTH or not all(map(_label_character, value)):
            raise invalid(
                f"label {key!r}: value {value!r} may have at most {LABEL_LENGTH} lowercase letters, digits, '_' and '-'"
            )
    return dict(labels)


def _label_character(character: str) -> bool:
    return character in "_-" or character.isnumeric() or (character.isalpha() and character == character.lower())


def check_fields(resource: object, known: frozenset[str], what: str) -> Resource:
    """A JSON object with only known keys, as Google's REST front insists."""
    if not isinstance(resource, dict):
        raise invalid(f"{what} has to be an object")
    for key in resource:
        if key not in known:
            raise invalid(f"Invalid JSON payload received. Unknown name \"{key}\" at '{what}': Cannot find field.")
    return resource


def check_choice(value: object, choices: Sequence[str], what: str) -> str | None:
    """An enum by name; None if absent or unspecified."""
    if value is None or value == choices[0]:
        return None
    if value not in choices:
        raise invalid(f"{what}: {value!r} is none of {', '.join(choices[1:])}")
    return str(value)


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch -> `2026-01-15T02:00:00.000000Z`."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(moment: str) -> float:
    """The inverse of `rfc3339`, for any RFC 3339 time or date. Raises ValueError."""
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def page(
    items: Sequence[Resource], request: Mapping[str, Any], *, default: int, most: int, serial: str | None = None
) -> tuple[list[Resource], str | None]:
    """One page of `items`, and the token of the next one (None after the last).

    `serial` names a field that only grows: later pages leave out what was made after the first page was asked for, so
    that nothing is listed twice. Raises ApiError INVALID_ARGUMENT: a bad size, or a token of another request.
    """
    size = request.get("pageSize") or 0
    if not isinstance(size, int) or size < 0:
        raise invalid(f"pageSize has to be a whole number of at least 0, not {size!r}")
    size = min(size or default, most)
    digest = _digest(request)
    offset, newest = 0, max((int(item[serial]) for item in items), default=0) if serial else 0
    if request.get("pageToken"):
        offset, newest = _open_token(str(request["pageToken"]), digest)
    if serial:
        items = [item for item in items if int(item[serial]) <= newest]
    end = offset + size
    return list(items[offset:end]), _token(end, newest, digest) if end < len(items) else None


def _digest(request: Mapping[str, Any]) -> str:
    others = {key: value for key, value in request.items() if key not in ("pageToken", "pageSize", "skip") and value}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()[:16]


def _token(offset: int, newest: int, digest: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([offset, newest, digest]).encode()).decode()


def _open_token(token: str, digest: str) -> tuple[int, int]:
    try:
        offset, newest, of_request = json.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        raise invalid("pageToken is not one that this server gave") from None
    if of_request != digest:
        raise invalid("pageToken belongs to a request with other parameters")
    return int(offset), int(newest)


def refuse_unemulated(resource: Mapping[str, Any], fields: Mapping[str, str]) -> None:
    """Raises ApiError UNIMPLEMENTED if a field is given that nothing here carries out."""
    for key, name in fields.items():
        if resource.get(key):
            raise ApiError("UNIMPLEMENTED", f"{name} ({key}) is not emulated; see LIMITATIONS.md")
