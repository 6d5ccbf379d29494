"""Modules list, map and math. Every function gives a new value and leaves its arguments as they are."""

from __future__ import annotations

import math

from ..errors import type_error
from ..runtime import Frame
from ..values import Value, integer, type_name
from .registry import function, mapping, number, sequence, text


@function("list.concat", "objs", "val")
def concat(frame: Frame, objs: Value, val: Value) -> Value:
    """A copy with one more element at the end; a list as `val` becomes that one element."""
    return [*sequence("objs", objs), val]


@function("list.prepend", "objs", "val")
def prepend(frame: Frame, objs: Value, val: Value) -> Value:
    return [val, *sequence("objs", objs)]


@function("map.get", "map", "keys")
def get(frame: Frame, container: Value, keys: Value) -> Value:
    """The value of a key, or of a path of keys; null where one is missing or leads into something that is no map."""
    path = keys if type(keys) is list else [keys]
    for key in path:
        if type(key) is not str:
            raise type_error(f"keys must be a string or a list of strings, not {type_name(key)}")
        container = container.get(key) if type(container) is dict else None
    return container


@function("map.delete", "map", "key")
def delete(frame: Frame, container: Value, key: Value) -> Value:
    """A copy without the key, which need not be there."""
    name = text("key", key)
    return {other: value for other, value in mapping("map", container).items() if other != name}


@function("map.merge", "first", "second")
def merge(frame: Frame, first: Value, second: Value) -> Value:
    """A copy of `first` with the entries of `second`, which win."""
    return {**mapping("first", first), **mapping("second", second)}


@function("map.merge_nested", "first", "second")
def merge_nested(frame: Frame, first: Value, second: Value) -> Value:
    """As map.merge, with maps that both have under a key merged in the same way."""
    return _merged(mapping("first", first), mapping("second", second))


def _merged(first: dict[str, Value], second: dict[str, Value]) -> dict[str, Value]:
    result = dict(first)
    for key, value in second.items():
        old = first.get(key)
        result[key] = _merged(old, value) if type(old) is dict and type(value) is dict else value
    return result


@function("math.abs", "x")
def absolute(frame: Frame, x: Value) -> Value:
    value = abs(number("x", x))
    return integer(value) if type(value) is int else value


@function("math.floor", "x")
def floor(frame: Frame, x: Value) -> Value:
    """The greatest integer not above x."""
    return integer(math.floor(number("x", x)))


@function("math.max", "x", "y")
def maximum(frame: Frame, x: Value, y: Value) -> Value:
    return max(number("x", x), number("y", y))


@function("math.min", "x", "y")
def minimum(frame: Frame, x: Value, y: Value) -> Value:
    return min(number("x", x), number("y", y))
