"""The schedule: five-field unix-cron, and what summer time does to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tools.check.findings import Finding, Project

_FIELD = re.compile(r"[0-9A-Za-z*,/-]+")
YEAR = 366 * 24  # hours that are looked at for changes of the clock


def schedule(project: Project, now: datetime) -> Iterator[Finding]:
    """`now` is aware; the changes of the clock in the year after it are looked at."""
    text, zone = project.settings.schedule, project.settings.time_zone
    watch = project.settings.gaps_schedule
    if watch and (wrong := _problem(watch)):
        yield Finding(
            "error",
            *project.place("GAPS_SCHEDULE"),
            f"{watch!r} is not unix-cron ({wrong})",
            "Write five fields: minute hour day month weekday, such as 0 8 * * *; or nothing",
        )
    place = project.place("SCHEDULE")
    problem = _problem(text)
    if problem:
        yield Finding(
            "error",
            *place,
            f"{text!r} is not unix-cron ({problem}); only that form carries the slot's time, without which every "
            f"slot is refused",
            "Write five fields: minute hour day month weekday, such as 0 3 * * *",
        )
        return
    if text.split()[1].startswith("*"):
        return  # hourly and more often: the hour that is skipped or doubled has other slots around it
    for kind, local in clock_changes(text, zone, now):
        yield Finding(
            "warning",
            *place,
            f"on {local:%Y-%m-%d} the clocks of {zone} change and the slot of {local:%H:%M} is {kind}",
            "Choose an hour that no change touches (06:00), or TIME_ZONE=Etc/UTC",
        )


def _problem(text: str) -> str | None:
    fields = text.split()
    if len(fields) != 5:
        return f"{len(fields)} fields"
    for field in fields:
        if not _FIELD.fullmatch(field):
            return f"{field!r} is no field of it"
    try:
        next(CronSim(text, datetime(2024, 1, 1)))  # four years on, a leap year included
    except (CronSimError, StopIteration):
        return "a field is out of range, or it never comes"
    return None


def shortest_period(text: str, zone: str) -> float | None:
    """Seconds between the two slots that lie closest together among the next 400; None if it is not unix-cron."""
    if _problem(text):
        return None
    slots = islice(CronSim(text, datetime(2024, 1, 1, tzinfo=ZoneInfo(zone))), 400)
    instants = [slot.astimezone(UTC) for slot in slots]
    return min(((later - earlier).total_seconds() for earlier, later in pairwise(instants)), default=None)


def clock_changes(text: str, zone: str, now: datetime) -> Iterator[tuple[str, datetime]]:
    """Slots on the wall clock that a change skips or doubles, with which of both it is."""
    place, hour = ZoneInfo(zone), timedelta(hours=1)
    instant = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for _ in range(YEAR):
        before, after = instant.astimezone(place), (instant + hour).astimezone(place)
        shift = (
            (after.utcoffset() or hour) - (before.utcoffset() or hour)
            if before.utcoffset() != after.utcoffset()
            else None
        )
        instant += hour
        if not shift:
            continue
        wall = after.replace(tzinfo=None)
        start, end = (wall - shift, wall) if shift > timedelta(0) else (wall, wall - shift)
        for slot in CronSim(text, start - timedelta(minutes=1)):
            if slot >= end:
                break
            yield ("skipped" if shift > timedelta(0) else "there twice (Scheduler may run it twice)"), slot
