"""The standard library and the expression helpers."""

from . import containers, encoding, helpers, http, retries, system, texts
from .registry import ABSENT, FUNCTIONS, OBJECTS, Function

__all__ = ["ABSENT", "FUNCTIONS", "MODULES", "OBJECTS", "Function"]

_PARTS = (containers, encoding, helpers, http, retries, system, texts)
MODULES = {name.split(".")[0] for name in (*FUNCTIONS, *OBJECTS) if "." in name}
