"""`retry`: which errors start the whole block again, how often, and after which delays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .errors import WorkflowError, type_error, value_error
from .library.registry import mapping, number, whole
from .runtime import Frame
from .values import Function, Value, type_name

_KEYS = {"predicate", "max_retries", "backoff"}
_DELAYS = {"initial_delay", "max_delay", "multiplier"}


@dataclass(frozen=True)
class Policy:
    """`max_retries` does not count the first attempt; delays are in seconds."""

    predicate: Function
    max_retries: int
    initial_delay: float
    max_delay: float
    multiplier: float

    @classmethod
    def of(cls, value: Value) -> Policy:
        """The policy of a map with predicate, max_retries and backoff. Raises TypeError or ValueError."""
        parts = _complete("retry", mapping("retry", value), _KEYS)
        backoff = _complete("backoff", mapping("backoff", parts["backoff"]), _DELAYS)
        predicate, retries = parts["predicate"], whole("max_retries", parts["max_retries"])
        if not isinstance(predicate, Function):
            raise type_error(f"predicate must be a subworkflow, not {type_name(predicate)}")
        initial, most, multiplier = (
            float(number(key, backoff[key])) for key in ("initial_delay", "max_delay", "multiplier")
        )
        if retries < 0 or initial < 0 or most < 0 or multiplier < 0:
            raise value_error("max_retries, initial_delay, max_delay and multiplier cannot be negative")
        return cls(predicate, retries, initial, most, multiplier)

    def delays(self) -> Iterator[float]:
        """The wait before each retry: it grows by the multiplier up to max_delay, and stays there."""
        delay = self.initial_delay
        for _ in range(self.max_retries):
            yield min(delay, self.max_delay)
            delay = min(delay * self.multiplier, self.max_delay)

    def wants(self, frame: Frame, error: WorkflowError) -> bool:
        """Whether the predicate is for another attempt. Raises TypeError when it gives no boolean."""
        answer = self.predicate.call(frame, [error.payload])
        if type(answer) is not bool:
            raise type_error(f'predicate "{self.predicate.name}" must give a boolean, not {type_name(answer)}')
        return answer


def _complete(what: str, value: dict[str, Value], keys: set[str]) -> dict[str, Value]:
    for key in sorted(keys - value.keys()):
        raise value_error(f"{what} has no {key}")
    for key in sorted(value.keys() - keys):
        raise value_error(f"{what} takes no {key}")
    return value
