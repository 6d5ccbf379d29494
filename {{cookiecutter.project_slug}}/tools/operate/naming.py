"""How a person names a run: the first digits of its id, or its slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from exactly_once.identity import is_run_id, parse_instant, slot_run
from exactly_once.lookups import Lookups
from exactly_once.records import Record
from tools.errors import UserError
from tools.settings import Settings

SHORT = 8
"""Digits of a run id that are shown."""

LEAST = 4
"""Digits that have to be given."""


def short(run_id: str) -> str:
    return run_id[:SHORT]


def find(lookups: Lookups, settings: Settings, name: str) -> tuple[str, Record]:
    """The run that `name` stands for. Raises UserError for none, or for several; Unreachable."""
    kept = f"records are kept for {settings.retention_days + 2} days after their last change, then they are removed"
    if any(sign in name for sign in "T:-"):
        try:
            run_id = slot_run(settings.pipeline, settings.scope, settings.job, parse_instant(name), "UTC").run_id
        except ValueError as error:
            raise UserError(f"{name!r} is neither a run id nor a slot: {error}") from None
        if record := lookups.run(run_id):
            return run_id, record
        raise UserError(f"the slot {name} has no run: ./pipeline gaps shows which have none; {kept}")
    text = name.lower()
    if not LEAST <= len(text) <= 64 or set(text) - set("0123456789abcdef"):
        raise UserError(f"{name!r} is no run id: give at least {LEAST} of its digits (0-9, a-f), or its slot")
    if is_run_id(text):
        record = lookups.run(text)
        found = {text: record} if record else {}
    else:
        found = lookups.starting_with(text)
    if not found:
        raise UserError(f"there is no run {name}: ./pipeline runs lists them; {kept}")
    if len(found) > 1:
        several = ", ".join(run_id[: len(text) + 4] for run_id in found)
        raise UserError(f"{name} is ambiguous: {several}; give more digits")
    return next(iter(found.items()))


def instant(text: str, now: datetime) -> datetime:
    """RFC 3339, a date (its beginning in UTC), or how long ago: 90m, 12h, 7d. Raises UserError."""
    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    if text[-1:] in units and text[:-1].isdigit():
        return now - timedelta(**{units[text[-1]]: int(text[:-1])})
    try:
        return parse_instant(text if "T" in text.upper() else f"{text}T00:00:00Z").astimezone(UTC)
    except ValueError:
        raise UserError(f"{text!r} is no time: write 7d, 12h, 2026-01-15 or 2026-01-15T02:00:00Z") from None
