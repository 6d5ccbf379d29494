"""What the operators of an expression do, and with which types.

``+`` follows the published table of conversions: a string with a number or a boolean is joined as text. No other
operator converts anything but an integer to a double.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from . import values
from .errors import WorkflowError, type_error, value_error
from .values import Value, checked_text, integer, is_number, type_name


def text_of(value: Value) -> str:
    """A string, number or boolean as text, as `string()` gives it. Raises TypeError for anything else."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return values.format_double(value)
    raise type_error(f"cannot make a string of a value of type {type_name(value)}: use json.encode_to_string")


def plus(left: Value, right: Value) -> Value:
    kind, other = type(left), type(right)
    if kind is int and other is int:
        return integer(left + right)
    if kind is str and other is str:
        return checked_text(left + right)
    if is_number(left) and is_number(right):
        return _double(left + right)
    if (kind is str and other in (int, float, bool)) or (other is str and kind in (int, float, bool)):
        return checked_text(text_of(left) + text_of(right))
    raise _unsupported("+", left, right)


def minus(left: Value, right: Value) -> Value:
    _require_numbers("-", left, right)
    return _number(left - right)


def times(left: Value, right: Value) -> Value:
    _require_numbers("*", left, right)
    return _number(left * right)


def divide(left: Value, right: Value) -> Value:
    """`/`: always a double."""
    _require_divisor("/", left, right)
    return _double(left / right)


def floor_divide(left: Value, right: Value) -> Value:
    """`//`: the greatest whole number below the quotient, an integer for two integers."""
    _require_divisor("//", left, right)
    return _number(left // right)


def remainder(left: Value, right: Value) -> Value:
    """`%`: what `//` leaves over, so it has the sign of the divisor."""
    _require_divisor("%", left, right)
    return _number(left % right)


def negative(value: Value) -> Value:
    if not is_number(value):
        raise type_error(f"unary - needs a number, not {type_name(value)}")
    return _number(-value)


def boolean(operator: str, value: Value) -> bool:
    """The operand of `and`, `or`, `not`, or a condition. Raises TypeError for anything but a boolean."""
    if value is True or value is False:
        return bool(value)
    raise type_error(f"{operator} needs a boolean, not {type_name(value)}")


def contains(item: Value, container: Value) -> bool:
    """`in`: a key of a map, or an element of a list."""
    if type(container) is list:
        return any(values.equal(item, element) for element in container)
    if type(container) is dict:
        if type(item) is not str:
            raise type_error(f"the keys of a map are strings, not {type_name(item)}")
        return item in container
    raise type_error(f"in needs a list or a map on its right, not {type_name(container)}")


def ordering(operator: str, compare: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    """`<` and its like: two numbers, or two strings."""

    def ordered(left: Value, right: Value) -> bool:
        kind, other = type(left), type(right)
        if kind is other and kind in (int, float, str):
            return compare(left, right)
        if is_number(left) and is_number(right):
            return compare(left, right)
        raise _unsupported(operator, left, right)

    return ordered


BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "+": plus,
    "-": minus,
    "*": times,
    "/": divide,
    "//": floor_divide,
    "%": remainder,
    "<": ordering("<", lambda left, right: left < right),
    "<=": ordering("<=", lambda left, right: left <= right),
    ">": ordering(">", lambda left, right: left > right),
    ">=": ordering(">=", lambda left, right: left >= right),
    "==": values.equal,
    "!=": lambda left, right: not values.equal(left, right),
    "in": contains,
}


def _require_numbers(operator: str, left: Value, right: Value) -> None:
    if not (is_number(left) and is_number(right)):
        raise _unsupported(operator, left, right)


def _require_divisor(operator: str, left: Value, right: Value) -> None:
    _require_numbers(operator, left, right)
    if right == 0:
        raise WorkflowError.of("ZeroDivisionError", f"the right side of {operator} is zero")


def _number(number: Value) -> Value:
    return integer(number) if type(number) is int else _double(number)


def _double(number: float) -> float:
    if math.isfinite(number):
        return number
    raise value_error("the result is too large for a double")


def _unsupported(operator: str, left: Value, right: Value) -> WorkflowError:
    return type_error(f"{operator} cannot be applied to {type_name(left)} and {type_name(right)}")
