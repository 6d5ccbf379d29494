"""Functions without a module: conversions, sizes, conditions."""

from __future__ import annotations

import math
import re

from .. import operators
from ..errors import type_error, value_error
from ..runtime import Frame
from ..values import Value, integer, type_name
from .registry import function, mapping

_INTEGER = re.compile(r"[-+]?[0-9]+")
_DOUBLE = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


@function("int", "value")
def to_int(frame: Frame, value: Value) -> Value:
    """A string in decimal, or a double without its fraction."""
    kind = type(value)
    if kind is int:
        return value
    if kind is float:
        return integer(math.trunc(value))
    if kind is str:
        if not _INTEGER.fullmatch(value):
            raise value_error(f"int: {value!r} is not a whole number")
        return integer(int(value))
    raise type_error(f"int takes a string or a double, not {type_name(value)}")


@function("double", "value")
def to_double(frame: Frame, value: Value) -> Value:
    kind = type(value)
    if kind is float or kind is int:
        return float(value)
    if kind is str:
        if not _DOUBLE.fullmatch(value) or not math.isfinite(float(value)):
            raise value_error(f"double: {value!r} is not a number")
        return float(value)
    raise type_error(f"double takes a string or an integer, not {type_name(value)}")


@function("string", "value")
def to_string(frame: Frame, value: Value) -> Value:
    return operators.text_of(value)


@function("keys", "map")
def keys(frame: Frame, value: Value) -> Value:
    return list(mapping("map", value))


@function("len", "value")
def length(frame: Frame, value: Value) -> Value:
    """Of a string in characters, of a list in elements, of a map in entries."""
    if type(value) in (str, list, dict):
        return len(value)
    raise type_error(f"len takes a list, a map or a string, not {type_name(value)}")


@function("default", "value", "default")
def default(frame: Frame, value: Value, otherwise: Value) -> Value:
    """`value` unless it is null. Both are evaluated, so a missing key is still a KeyError: use map.get."""
    return otherwise if value is None else value


@function("if", "condition", "then", "otherwise")
def choose(frame: Frame, condition: Value, then: Value, otherwise: Value) -> Value:
    """`then` if the condition is true, `otherwise` if it is false or null. Both are evaluated."""
    return then if condition is not None and operators.boolean("if", condition) else otherwise


@function("get_type", "value")
def get_type(frame: Frame, value: Value) -> Value:
    return type_name(value)
