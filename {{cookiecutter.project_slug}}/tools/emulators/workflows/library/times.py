"""RFC 3339 text to seconds since the epoch and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..errors import value_error

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse(text: str) -> float:
    """Seconds of an RFC 3339 time. Raises ValueError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise value_error(f"{text!r} is no RFC 3339 time, such as 2026-01-15T02:00:00Z")
    *parts, fraction, zone = found.groups()
    try:
        offset: tzinfo = UTC if zone in "Zz" else _offset(zone)
        year, month, day, hour, minute, second = map(int, parts)
        whole = datetime(year, month, day, hour, minute, second, tzinfo=offset)
    except ValueError as error:
        raise value_error(f"{text!r} is no time: {error}") from error
    seconds = (whole - _EPOCH) // timedelta(seconds=1)
    return seconds + float(fraction or 0)


def format_time(seconds: float, zone: str = "UTC") -> str:
    """RFC 3339, to the microsecond where there is a fraction. Raises ValueError for an unknown zone."""
    try:
        place: tzinfo = UTC if zone == "UTC" else ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise value_error(f"unknown time zone {zone!r}: give a name such as Europe/Berlin") from error
    try:
        moment = (_EPOCH + timedelta(microseconds=round(seconds * 1e6))).astimezone(place)
    except (OverflowError, ValueError) as error:
        raise value_error(f"{seconds} is not a time that can be written") from error
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""
    offset = moment.isoformat()[-6:]
    return text + fraction + ("Z" if offset == "+00:00" else offset)


def _offset(text: str) -> timezone:
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"offset {text}")
    return timezone((1 if text[0] == "+" else -1) * timedelta(hours=hours, minutes=minutes))
