"""Refuses answers that would give a project that cannot be deployed: one line for each, and nothing is made.

The answers come as one JSON text. `tojson` leaves no apostrophe, line break or non-ASCII character in it, so it is
safe between apostrophes whatever the answers hold, and the file stays plain Python before it is rendered, too.
"""

import json
import re
import sys
import zoneinfo
from collections.abc import Iterator, Sequence

ANSWERS = r'{{ cookiecutter | tojson }}'  # fmt: skip

FIELDS = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day of month", 1, 31, ""),
    ("month", 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"),
    ("day of week", 0, 6, "SUN MON TUE WED THU FRI SAT"),
)
"""Name, lowest and highest value, and names of the values from the lowest on."""


def problems(answers: dict[str, object]) -> Iterator[str]:
    """One line for each answer that cannot be used."""
    checks = (
        ("project_name", name_problem),
        ("project_slug", slug_problem),
        ("gcp_project", project_problem),
        ("region", region_problem),
        ("schedule", schedule_problem),
        ("time_zone", zone_problem),
    )
    for name, check in checks:
        problem = check(str(answers[name]))
        if problem:
            yield f"{name} {str(answers[name])!r}: {problem}"


def name_problem(name: str) -> str | None:
    if not name.strip() or not name.isprintable():
        return "write one line of text"
    return None


def slug_problem(slug: str) -> str | None:
    if not re.fullmatch(r"[a-z](-?[a-z0-9])+", slug):
        return "write lower-case letters, digits and single dashes between them, beginning with a letter"
    if not 4 <= len(slug) <= 20:
        return "write 4 to 20 characters: names of accounts and services are made of it, and Google Cloud limits those"
    return None


def project_problem(project: str) -> str | None:
    if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", project):
        return "a project id is 6 to 30 lower-case letters, digits and dashes, with a letter first and no dash last"
    return None


def region_problem(region: str) -> str | None:
    if not re.fullmatch(r"[a-z]+(-[a-z]+)+[0-9]+", region):
        return "write a region of Cloud Run such as europe-west1 or us-central1"
    return None


def zone_problem(zone: str) -> str | None:
    known = zoneinfo.available_timezones()
    if zone not in known if known else not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", zone):
        return "not a time zone; write an IANA name such as Europe/Berlin or Etc/UTC"
    return None


def schedule_problem(schedule: str) -> str | None:
    fields = schedule.split()
    if re.search(r"\b(every|synchronized|of|st|nd|rd|th)\b|\d(st|nd|rd|th)\b", schedule.lower()):
        return (
            "App Engine's groc form, under which Cloud Scheduler does not promise the slot's time; "
            "write unix-cron, such as '*/5 * * * *' for every 5 minutes"
        )
    if schedule.startswith("@"):
        return "a macro; write unix-cron, such as '0 0 * * *' for once a day"
    if len(fields) != 5:
        return f"{len(fields)} fields; unix-cron has five: minute hour day-of-month month day-of-week"
    if schedule != " ".join(fields):
        return "write one space between two fields, and none around them"
    for text, (name, low, high, names) in zip(fields, FIELDS, strict=True):
        for part in text.split(","):
            problem = part_problem(part, low, high, names.split())
            if problem:
                return f"{name} {text!r}: {problem}"
    first_day = min(int(re.split("[-/]", part)[0].replace("*", "1")) for part in fields[2].split(","))
    if fields[4].startswith("*") and not day_exists(first_day, fields[3]):
        return "this day is in no year, so it would never run"
    return None


def part_problem(part: str, low: int, high: int, names: Sequence[str]) -> str | None:
    """What is wrong with one element of a field's list: ``*``, a value or a range, with or without a step."""
    match = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\w+))?", part, re.ASCII)
    if not match:
        return "write *, a value, a range such as 1-5, a step such as */5, or a list of these"
    star, first, last, step = match.groups()
    if step and (not step.isdigit() or int(step) < 1):
        return f"the step {step!r} is no number from 1 up"
    if step and not star and last is None:
        return "a step goes with * or with a range"
    values = []
    for text in (first, last):
        if text is not None:
            number = value_of(text, low, names)
            if number is None or not low <= number <= high:
                known = f" or {names[0]} to {names[-1]}" if names else ""
                return f"{text!r} is not within {low} to {high}{known}"
            values.append(number)
    if len(values) == 2 and values[0] > values[1]:
        return f"the range {first}-{last} runs backwards"
    return None


def value_of(text: str, low: int, names: Sequence[str]) -> int | None:
    """The number that `text` stands for, or None."""
    if text.isdigit():
        return int(text)
    return low + names.index(text.upper()) if text.upper() in names else None


def day_exists(day: int, months: str) -> bool:
    """Whether one of the months of a field has `day`; a list or range of months always reaches one that has."""
    last = {"2": 29, "FEB": 29, **dict.fromkeys(("4", "6", "9", "11", "APR", "JUN", "SEP", "NOV"), 30)}
    return any(day <= last.get(month, 31) for month in months.upper().split(","))


def main() -> int:
    lines = list(problems(json.loads(ANSWERS)))
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
