"""The register of library functions: their parameters for the checks of a deployment, their code for the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import type_error
from ..values import Value, type_name

ABSENT: Any = object()
"""What the code of a function gets for an optional argument that was not given."""


@dataclass(frozen=True)
class Parameter:
    name: str
    required: bool


@dataclass(frozen=True)
class Function:
    """A function: `code` takes the frame and one value a parameter. A `blocking` one cannot stand in an expression."""

    name: str
    params: tuple[Parameter, ...]
    blocking: bool
    code: Callable[..., Value]
    refused: dict[str, str] = field(default_factory=dict)  # arguments that are not emulated, with the reason


FUNCTIONS: dict[str, Function] = {}
OBJECTS: dict[str, Value] = {}
"""Names that are values: policies, and functions named without calling them."""


def function(
    name: str, *params: str, blocking: bool = False, refused: dict[str, str] | None = None
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register a function; a parameter written ``name?`` is optional."""

    def register(code: Callable[..., Value]) -> Callable[..., Value]:
        parameters = tuple(Parameter(param.rstrip("?"), not param.endswith("?")) for param in params)
        FUNCTIONS[name] = Function(name, parameters, blocking, code, refused or {})
        return code

    return register


def text(name: str, value: Value) -> str:
    """The argument `name` as a string. Raises TypeError."""
    if type(value) is str:
        return value
    raise type_error(f"{name} must be a string, not {type_name(value)}")


def whole(name: str, value: Value) -> int:
    """The argument `name` as an integer. Raises TypeError."""
    if type(value) is int:
        return value
    raise type_error(f"{name} must be an integer, not {type_name(value)}")


def number(name: str, value: Value) -> int | float:
    """The argument `name` as a number. Raises TypeError."""
    if type(value) is int or type(value) is float:
        return value
    raise type_error(f"{name} must be a number, not {type_name(value)}")


def octets(name: str, value: Value) -> bytes:
    """The argument `name` as bytes. Raises TypeError."""
    if type(value) is bytes:
        return value
    raise type_error(f"{name} must be bytes, not {type_name(value)}: text.encode gives bytes of a string")


def mapping(name: str, value: Value) -> dict[str, Value]:
    """The argument `name` as a map. Raises TypeError."""
    if type(value) is dict:
        return value
    raise type_error(f"{name} must be a map, not {type_name(value)}")


def sequence(name: str, value: Value) -> list[Value]:
    """The argument `name` as a list. Raises TypeError."""
    if type(value) is list:
        return value
    raise type_error(f"{name} must be a list, not {type_name(value)}")


def flag(name: str, value: Value) -> bool:
    """The argument `name` as a boolean. Raises TypeError."""
    if type(value) is bool:
        return value
    raise type_error(f"{name} must be a boolean, not {type_name(value)}")
