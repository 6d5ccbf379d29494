"""A failed cell's story: what was injected, then what everybody said, in order."""

from __future__ import annotations

from typing import Any

from .cells import Trouble
from .trial import Observation

QUIET = frozenset(["front.request", "workflow.call", "workflow.returned", "output", "log", "process.started"])

DETAILS = ("item", "attempt", "state", "status", "seconds", "reason", "error")

LONGEST = 80
"""Lines; the middle of a longer story is left out."""


def story(seen: Observation, trouble: Trouble) -> list[str]:
    """Lines that a person can follow. Times are seconds since the slot's first delivery, on the emulators' clock."""
    told = [f"injected: {cell.fault}" for cell in trouble.cells]
    disturbed = {part for cell in trouble.cells for part in (cell.hop.caller, cell.hop.callee)}
    events = [event for event in seen.events if event["event"] not in QUIET]
    if not events:
        return [*told, "and then nothing was said"]
    items = {event.get("item") for event in events if _trouble(event)} - {None}
    began = events[0]["time"]
    lines = [
        _line(event, began)
        for event in events
        if _trouble(event) or event["service"] not in disturbed or not event.get("item") or event["item"] in items
    ]
    if len(lines) > LONGEST:
        half = LONGEST // 2
        lines = [*lines[:half], f"... {len(lines) - LONGEST} lines ...", *lines[-half:]]
    return [*told, *lines]


def _trouble(event: dict[str, Any]) -> bool:
    return event.get("severity") in ("WARNING", "ERROR") or event["event"].startswith(("process.", "operator."))


def _line(event: dict[str, Any], began: float) -> str:
    details = " ".join(f"{name}={str(event[name])[:160]}" for name in DETAILS if event.get(name) not in (None, ""))
    return f"{event['time'] - began:9.2f} s  {event['service']}: {event['event']} {details}".rstrip()
