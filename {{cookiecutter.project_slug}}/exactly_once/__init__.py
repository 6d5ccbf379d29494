"""Exactly-once steps on Firestore: what authors of steps use.

    from exactly_once import Permanent, Retry, Run, step, transactional_step

    @transactional_step
    def main(transaction, run, payload): ...     # every effect is a Firestore write

    @step(on_unknown="hold")
    def main(run, payload): ...                  # the effect is outside; send run.idempotency_key with it

Modules: `errors` (all exceptions), `identity` (who a run is), `store` and `protocol` (claim, settle, extend),
`external`, `transactional` and `chunks` (the kinds of steps), `contract` (HTTP), `launching` and `starting` (the
proxy), `operate` (operators), `log` (every event).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import LeaseLost, Permanent, Retry
from .run import Run

if TYPE_CHECKING:
    from .external import NOT_DONE, UNKNOWN, Done
    from .runtime import database
    from .steps import chunk_step, step, transactional_step

__all__ = [
    "NOT_DONE",
    "UNKNOWN",
    "Done",
    "LeaseLost",
    "Permanent",
    "Retry",
    "Run",
    "chunk_step",
    "database",
    "step",
    "transactional_step",
]

_FROM = {"NOT_DONE": "external", "UNKNOWN": "external", "Done": "external", "database": "runtime"}


def __getattr__(name: str) -> Any:
    """The names that need Firestore's client, imported when they are asked for: tools that only want identities do
    not.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_FROM.get(name, 'steps')}"), name)
