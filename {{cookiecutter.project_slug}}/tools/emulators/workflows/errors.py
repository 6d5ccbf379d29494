"""Every error of the emulator.

DefinitionErrors      a source that Workflows would not deploy; holds `Finding`s
WorkflowError         raised while an execution runs; a handler gets its `payload`
  (uncatchable)       ResourceLimitError: `catchable` is False
Cancelled             the execution was cancelled; nothing catches it
TransportError        what a transport reports instead of an answer
  ConnectionFailed    never connected
  ConnectionBroken    connected, then broke
  TimedOut            no answer within the time-out
  AuthFailed          no credentials could be made
  ResponseTooLarge    more than 2 MiB
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Payload = Any


@dataclass(frozen=True)
class Finding:
    """One thing that stops a deployment. `line` and `column` count from 1; `step` is "" where there is none."""

    file: str
    line: int
    column: int
    step: str
    message: str

    def __str__(self) -> str:
        step = f'step "{self.step}": ' if self.step else ""
        return f"{self.file}:{self.line}:{self.column}: {step}{self.message}"


class DefinitionErrors(Exception):  # noqa: N818
    """The source cannot be deployed; `findings` are in order of position and never empty."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = sorted(findings, key=lambda finding: (finding.line, finding.column))
        super().__init__("\n".join(str(finding) for finding in self.findings))


class Position(NamedTuple):
    """Where an error passed: a step of a routine (a workflow's name), from line and column 1."""

    step: str
    routine: str
    line: int
    column: int


class WorkflowError(Exception):
    """An error a workflow can see: `payload` is the value its handler's variable gets.

    `stack` names the steps it passed, innermost first, one a routine.
    """

    def __init__(self, payload: Payload, *, catchable: bool = True, kind: str | None = None) -> None:
        self.payload = payload
        self.catchable = catchable
        self.kind = kind
        self.stack: list[Position] = []
        self.placed = False  # a step of the routine it is passing through is in `stack`
        super().__init__(self.summary())

    @classmethod
    def of(cls, tags: str | Sequence[str], message: str, **more: Payload) -> WorkflowError:
        """An error of the engine or the library: a map with tags, message and `more`."""
        names = [tags] if isinstance(tags, str) else list(tags)
        payload = {**more, "message": message, "tags": names}
        return cls(payload, catchable="ResourceLimitError" not in names, kind=names[0])

    def summary(self) -> str:
        """One line for people, as an execution's error context begins."""
        if isinstance(self.payload, dict):
            message = self.payload.get("message")
            return message if isinstance(message, str) else repr(self.payload)
        return str(self.payload)

    def tags(self) -> list[Payload]:
        """The payload's tags; empty for one without."""
        tags = self.payload.get("tags") if isinstance(self.payload, dict) else None
        return tags if isinstance(tags, list) else []


class Cancelled(Exception):  # noqa: N818
    """The execution was cancelled."""


class TransportError(Exception):
    """What a transport reports instead of an answer."""

    tag = "SystemError"


class ConnectionFailed(TransportError):  # noqa: N818
    """No connection was made: name resolution, refused, TLS."""

    tag = "ConnectionFailedError"


class ConnectionBroken(TransportError):  # noqa: N818
    """The connection was made and broke before the answer was whole."""

    tag = "ConnectionError"


class TimedOut(TransportError):  # noqa: N818
    """No whole answer within the call's time-out."""

    tag = "TimeoutError"


class AuthFailed(TransportError):  # noqa: N818
    """Credentials for the call could not be made."""

    tag = "AuthError"


class ResponseTooLarge(TransportError):  # noqa: N818
    """The answer is larger than Workflows reads."""

    tag = "ResourceLimitError"


def type_error(message: str) -> WorkflowError:
    return WorkflowError.of("TypeError", message)


def value_error(message: str) -> WorkflowError:
    return WorkflowError.of("ValueError", message)


def key_error(key: str) -> WorkflowError:
    return WorkflowError.of("KeyError", f"key not found: {key}")


def index_error(index: int, length: int) -> WorkflowError:
    return WorkflowError.of("IndexError", f"index {index} is out of range of a list of {length}")


def limit_error(message: str) -> WorkflowError:
    return WorkflowError.of("ResourceLimitError", message)


def http_error(code: int, headers: dict[str, Payload], body: Payload, message: str | None = None) -> WorkflowError:
    """The HttpError of an answer with status `code` >= 400; `body` is decoded as a result's body is."""
    text = message or f"HTTP server responded with error code {code}"
    return WorkflowError.of("HttpError", text, code=code, headers=headers, body=body)
