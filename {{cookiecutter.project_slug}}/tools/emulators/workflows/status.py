"""How the two APIs say that a request is refused: a canonical status and a message.

ApiError is the only exception that the services of this package raise to a caller of the APIs; gRPC sends it as a
status, REST as Google's error object.
"""

from __future__ import annotations

from typing import Any

CODES: dict[str, tuple[int, int]] = {
    "CANCELLED": (1, 499),
    "UNKNOWN": (2, 500),
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "ALREADY_EXISTS": (6, 409),
    "PERMISSION_DENIED": (7, 403),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "ABORTED": (10, 409),
    "OUT_OF_RANGE": (11, 400),
    "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
    "DATA_LOSS": (15, 500),
    "UNAUTHENTICATED": (16, 401),
}
"""Status name -> (gRPC code, HTTP status), as google.rpc.Code maps them."""


class ApiError(Exception):
    """A request is refused: `status` is a key of CODES."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message

    @property
    def code(self) -> int:
        """gRPC's number."""
        return CODES[self.status][0]

    @property
    def http_status(self) -> int:
        return CODES[self.status][1]

    def as_json(self) -> dict[str, Any]:
        """The body of Google's REST errors."""
        return {"error": {"code": self.http_status, "message": self.message, "status": self.status}}


def invalid(message: str) -> ApiError:
    return ApiError("INVALID_ARGUMENT", message)


def not_found(name: str) -> ApiError:
    return ApiError("NOT_FOUND", f"Resource '{name}' was not found")
