"""Values of the language: int64, double, string, boolean, bytes, null, list and map as Python's own types.

A value is never changed in place. Assigning below a variable copies the containers on the path and shares the rest,
so assignment copies by value at the price of a reference, and branches read without locks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import errors, limits

Value = Any
"""int | float | str | bool | bytes | None | list[Value] | dict[str, Value] | Function"""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


class Function:
    """A subworkflow or a library function used as a value: a retry's predicate. It can only be called."""

    def __init__(self, name: str, call: Callable[[Any, list[Value]], Value]) -> None:
        self.name = name
        self.call = call


def type_name(value: Value) -> str:
    """The name `get_type` gives."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "double"
        case str():
            return "string"
        case bytes():
            return "bytes"
        case list():
            return "list"
        case dict():
            return "map"
        case _:
            return "function"


def is_number(value: Value) -> bool:
    kind = type(value)
    return kind is int or kind is float


def integer(number: int) -> int:
    """`number`, or a ValueError when it does not fit in 64 bits."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise errors.value_error("integer overflow: the result does not fit in 64 bits")


def checked_text(text: str) -> str:
    """`text`, or a ResourceLimitError when it is longer than a string may be."""
    if len(text) * 4 > limits.STRING_LIMIT and len(text.encode(errors="surrogatepass")) > limits.STRING_LIMIT:
        raise errors.limit_error(f"string is longer than {limits.STRING_LIMIT} bytes")
    return text


def size(value: Value, depth: int = 0) -> int:
    """Bytes a value takes of the memory limit: about those of its compact JSON.

    Raises ResourceLimitError for one that is nested too deeply.
    """
    kind = type(value)
    if kind is str:
        return (len(value) if value.isascii() else len(value.encode(errors="surrogatepass"))) + 2
    if kind is int or kind is float:
        return 8
    if depth > limits.NESTING_LIMIT:
        raise errors.limit_error(f"a value is nested more than {limits.NESTING_LIMIT} levels deep")
    if kind is dict:
        return 2 + sum(size(key) + size(item, depth + 1) + 2 for key, item in value.items())
    if kind is list:
        return 2 + sum(size(item, depth + 1) + 1 for item in value)
    if kind is bytes:
        return len(value)
    return 4


def equal(left: Value, right: Value) -> bool:
    """`==`: numbers by value, everything else only within its own type."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is dict:
            return left.keys() == right.keys() and all(equal(item, right[key]) for key, item in left.items())
        if kind is list:
            return len(left) == len(right) and all(map(equal, left, right))
        return bool(left == right)
    return is_number(left) and is_number(right) and bool(left == right)


def member(container: Value, key: Value) -> Value:
    """`container.key` and `container[key]`.

    Raises KeyError, IndexError, or TypeError for a container that is neither list nor map or a key of a wrong type.
    """
    kind = type(container)
    if kind is dict:
        if type(key) is not str:
            raise errors.type_error(f"a map is indexed by a string, not by {type_name(key)}")
        if key in container:
            return container[key]
        raise errors.key_error(key)
    if kind is list:
        return container[_index(container, key)]
    raise errors.type_error(f"cannot look up {key!r} in a value of type {type_name(container)}")


def replaced(container: Value, path: Sequence[Value], value: Value) -> Value:
    """A copy of `container` with `value` at `path`; a map's missing last key is added, any other must exist."""
    if not path:
        return value
    key = path[0]
    if type(container) is dict and len(path) == 1 and type(key) is str:
        return {**container, key: value}
    inner = replaced(member(container, key), path[1:], value)
    copy = container.copy()
    copy[key] = inner
    return copy


def _index(items: list[Value], key: Value) -> int:
    if type(key) is not int:
        raise errors.type_error(f"a list is indexed by an integer, not by {type_name(key)}")
    if 0 <= key < len(items):
        return key
    raise errors.index_error(key, len(items))


def format_double(number: float) -> str:
    """A double as `string()` and JSON write it: shortest form that reads back, always a double again."""
    return repr(number).replace("e+", "e")


def to_json(value: Value, *, indent: str | None = None) -> str:
    """Compact JSON text (or indented).

    Raises TypeError for bytes and functions, ValueError for doubles JSON does not have.
    """
    _require_json(value)
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)


def from_json(text: str | bytes) -> Value:
    """The value of a JSON text; integers that do not fit in 64 bits become doubles. Raises `ValueError`."""
    return json.loads(text, parse_int=_parse_int, parse_constant=_refuse_constant)


def copy_of(value: object) -> Value:
    """A `Value` of plain data from outside (tuples and mappings become lists and maps)."""
    if isinstance(value, Mapping):
        return {str(key): copy_of(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [copy_of(item) for item in value]
    return value


def _parse_int(text: str) -> int | float:
    number = int(text)
    return number if INT_MIN <= number <= INT_MAX else float(text)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _require_json(value: Value) -> None:
    kind = type(value)
    if kind is dict:
        for item in value.values():
            _require_json(item)
    elif kind is list:
        for item in value:
            _require_json(item)
    elif kind is float:
        if not math.isfinite(value):
            raise errors.value_error(f"JSON has no {value}")
    elif kind is bytes:
        raise errors.type_error(
            "bytes have no JSON form: encode them with base64.encode or decode them with text.decode"
        )
    elif isinstance(value, Function):
        raise errors.type_error(f'function "{value.name}" has no JSON form')
