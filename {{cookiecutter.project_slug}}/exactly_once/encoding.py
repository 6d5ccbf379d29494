"""JSON as the runtime writes it: canonical for digests and identities, compact for results."""

from __future__ import annotations

import hashlib
import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from .errors import BadResult

RESULT_LIMIT = 256 * 1024
"""Bytes of a result as UTF-8 JSON: the longest string that Workflows holds."""

ERROR_LIMIT = 1000
"""Characters of an error as recorded, logged and answered."""


def canonical(value: Any) -> str:
    """The one text of a JSON value: keys sorted, no spaces, whole numbers without a fraction.

    `1`, `1.0` and `1e0` are one number to JSON and to Workflows, so they are one text here. Raises ValueError for
    what is not JSON (NaN and infinities among it) and TypeError for values of other types.
    """
    return _CANONICAL.encode(_plain(value))


_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def digest(value: Any) -> str:
    """sha256 of the canonical text, in hex. A lone surrogate, which JSON can carry and UTF-8 cannot, counts as is."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def result_text(value: Any) -> str:
    """The JSON text that is recorded and answered for a result, byte for byte the same at every replay.

    Raises BadResult, with what to do, for a value that is not JSON or whose text is over `RESULT_LIMIT` bytes.
    """
    try:
        text = _RESULT.encode(value)
        size = len(text.encode())
        _check_names(value)
    except BadResult:
        raise
    except UnicodeEncodeError as error:
        raise BadResult("the result holds a lone surrogate, which is not text: decode it properly") from error
    except ValueError as error:
        raise BadResult(
            f"the result is not JSON: {error}; NaN and infinities have no JSON, send null or text"
        ) from error
    except (TypeError, RecursionError) as error:
        raise BadResult(f"the result is not JSON: {error}") from error
    if size > RESULT_LIMIT:
        raise BadResult(f"the result has {size} bytes, at most {RESULT_LIMIT} fit: store it and return where it lies")
    return text


def error_text(error: BaseException) -> str:
    """What an exception says, as text that can be stored: without lone surrogates (undecodable file names and answers
    carry them), at most `ERROR_LIMIT` characters. An exception whose own `str` raises says nothing.
    """
    try:
        text = str(error)
    except Exception:
        return ""
    return text[:ERROR_LIMIT].encode("utf-8", "replace").decode()


def _check_names(value: Any) -> None:
    """`{1: "a", "1": "b"}` is one name twice as JSON: whoever reads it keeps one of the two. Raises BadResult."""
    if isinstance(value, dict):
        if len({key if isinstance(key, str) else json.dumps(key) for key in value}) < len(value):
            raise BadResult("the result holds a dict with keys that are one name as JSON: return strings as keys")
        for item in value.values():
            _check_names(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_names(item)


def _refuse(value: Any) -> Any:
    name = type(value).__name__
    if isinstance(value, Decimal):
        raise BadResult("the result holds a Decimal: return str(value), or an integer of the smallest unit")
    if isinstance(value, (datetime, date, time)):
        raise BadResult(f"the result holds a {name}: return value.isoformat()")
    if isinstance(value, (bytes, bytearray)):
        raise BadResult(f"the result holds {name}: return base64.b64encode(value).decode()")
    if isinstance(value, (set, frozenset)):
        raise BadResult(f"the result holds a {name}: return sorted(value)")
    raise BadResult(f"the result holds a {name}, which is not JSON: return a dict, list, string, number, bool or None")


_RESULT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_refuse)
