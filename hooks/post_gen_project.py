"""Finishes the project: the time budget for its schedule, the chosen example, execute bits.

Runs in the project's folder, and may run again over a project that is there already: then it leaves alone what it
finds done. How the answers come is told in pre_gen_project.py.
"""

import contextlib
import datetime
import json
import re
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

ANSWERS = r'{{ cookiecutter | tojson }}'  # fmt: skip

MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
DAYS = "SUN MON TUE WED THU FRI SAT".split()

BUDGETS = (
    (
        851,
        {
            "ATTEMPT_DEADLINE": 90,
            "PROXY_TIMEOUT": 60,
            "PROXY_LEASE": 120,
            "MIN_BACKOFF": 10,
            "MAX_BACKOFF": 180,
            "MAX_DOUBLINGS": 4,
            "MAX_RETRY_ATTEMPTS": 5,
            "MAX_RETRY_DURATION": 3600,
        },
    ),
    (
        286,
        {
            "ATTEMPT_DEADLINE": 25,
            "PROXY_TIMEOUT": 20,
            "PROXY_LEASE": 40,
            "MIN_BACKOFF": 5,
            "MAX_BACKOFF": 60,
            "MAX_DOUBLINGS": 4,
            "MAX_RETRY_ATTEMPTS": 5,
            "MAX_RETRY_DURATION": 135,
        },
    ),
    (
        0,
        {
            "ATTEMPT_DEADLINE": 15,
            "PROXY_TIMEOUT": 10,
            "PROXY_LEASE": 15,
            "MIN_BACKOFF": 5,
            "MAX_BACKOFF": 20,
            "MAX_DOUBLINGS": 2,
            "MAX_RETRY_ATTEMPTS": 3,
            "MAX_RETRY_DURATION": 35,
        },
    ),
)
"""Seconds that have to lie between two slots, and the budget that fits there: the retries stop before the next slot.
Back-offs and the attempts' deadlines add up to 310 + 6 x 90 = 850 s, 135 + 6 x 25 = 285 s and 35 + 4 x 15 = 95 s. The
last is too long for a schedule of every minute; `./pipeline check` says so."""

ORDERS = (
    "functions/reserve_stock/main.py",
    "functions/reserve_stock/step.env",
    "functions/charge_orders/main.py",
    "functions/charge_orders/step.env",
    "functions/charge_orders/requirements.txt",
    "functions/publish_report/main.py",
    "functions/publish_report/step.env",
    "functions/publish_report/requirements.txt",
    "data/small/orders.csv",
    "data/small/stock.csv",
    "data/load.py",
    "data/orders.csv",
    "data/stock.csv",
    "tests/test_charge_orders.py",
    "tests/test_load.py",
    "tests/test_publish_report.py",
    "tests/test_reserve_stock.py",
)
"""What only the example `orders` has. The example `none` brings its own of the rest, in examples/none."""


def budget(schedule: str) -> dict[str, int]:
    """The settings of proxy and retries that fit `schedule`, in seconds."""
    gap = smallest_gap(schedule)
    chosen = dict(next(settings for least, settings in BUDGETS if gap >= least))
    # By one reading of "both limits" the retries go on until the duration, one more back-off and one more attempt have
    # passed. Shorten the duration where that reaches the next slot, which a change of clocks may bring an hour nearer.
    room = gap - (3600 if gap > 3600 else 0) - chosen["MAX_BACKOFF"] - chosen["ATTEMPT_DEADLINE"]
    if chosen["MAX_RETRY_DURATION"] == 3600 and room <= 3600:
        chosen["MAX_RETRY_DURATION"] = max(310, (room - 1) // 10 * 10)
    return chosen


def smallest_gap(schedule: str) -> int:
    """Seconds between the two slots of `schedule` (valid unix-cron) that lie closest together, on the wall clock."""
    minute, hour, day, month, weekday = schedule.split()
    times = sorted(60 * h + m for h in values(hour, 0, 23) for m in values(minute, 0, 59))
    days, weekdays = values(day, 1, 31), values(weekday, 0, 6, DAYS)
    months = values(month, 1, 12, MONTHS)
    either = not day.startswith("*") and not weekday.startswith("*")  # cron: both restricted means one is enough
    first = datetime.date(2000, 1, 1).toordinal()
    matching = []
    for number in range(first, first + 28 * 366):  # every calendar there is
        date = datetime.date.fromordinal(number)
        fits = (date.day in days, date.isoweekday() % 7 in weekdays)
        if date.month in months and (any(fits) if either else all(fits)):
            matching.append(number)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if len(matching) > 1:
        gaps.append(1440 * min(later - earlier for earlier, later in pairwise(matching)) + times[0] - times[-1])
    return 60 * min(gaps, default=1440)  # none if there is no such day


def values(text: str, low: int, high: int, names: Sequence[str] = ()) -> set[int]:
    """The values of one field of a valid schedule."""
    found: set[int] = set()
    for part in text.upper().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        ends = (low, high) if span == "*" else (first, last or first)
        start, end = (low + names.index(value) if value in names else int(value) for value in ends)
        found.update(range(start, end + 1, int(step or 1)))
    return found


def fill_in(file: Path, settings: dict[str, int]) -> None:
    """Give the settings that stand empty in `file` their values; what somebody has chosen stays."""
    text = file.read_text(encoding="utf-8")
    for key, value in settings.items():
        text = re.sub(rf"^{key}=$", f"{key}={value}", text, flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")


def choose_example(example: str, root: Path) -> None:
    """Leave of the examples what was chosen."""
    if example == "none":
        for name in ORDERS:
            (root / name).unlink(missing_ok=True)
        folders = {folder for name in ORDERS for folder in (root / name).parents if folder.is_relative_to(root)}
        for folder in sorted(folders - {root}, reverse=True):  # the inner ones first
            with contextlib.suppress(OSError):  # not there, or holds something of the user's
                folder.rmdir()
        shutil.copytree(root / "examples" / "none", root, dirs_exist_ok=True)
    shutil.rmtree(root / "examples")


def main() -> None:
    answers = json.loads(ANSWERS)
    root = Path.cwd()
    fill_in(root / "settings.env", budget(answers["schedule"]))
    choose_example(answers["example"], root)
    for cache in [*root.rglob("__pycache__"), *root.glob(".*_cache")]:  # left in a template that was worked on
        if ".venv" not in cache.parts:
            shutil.rmtree(cache)
    for name in ("pipeline", "deploy.sh"):
        if (root / name).exists():
            (root / name).chmod(0o755)  # a zip has lost them


if __name__ == "__main__":
    main()
