"""The time budget that a project gets for its schedule."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from hooks import post_gen_project as hook
from tests.support.bake import Bake
from tools.settings import load

DAY = 86_400


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        ("0 2 * * *", DAY),
        ("*/5 * * * *", 300),
        ("* * * * *", 60),
        ("*/7 * * * *", 240),  # 56 to 0
        ("0 * * * *", 3600),
        ("0 9,17 * * *", 8 * 3600),
        ("50 23 * * *", DAY),
        ("10,50 0,23 * * *", 20 * 60),  # 23:50 to 0:10
        ("0 0 1 * *", 28 * DAY),
        ("0 0 1,31 * *", DAY),
        ("0 0 29 2 *", 4 * 365 * DAY + DAY),
        ("0 0 * * MON-FRI", DAY),
        ("0 0 * * mon", 7 * DAY),
        ("0 0 1 * MON", DAY),  # either is enough
        ("0 0 1 JAN *", 365 * DAY),
    ],
)
def test_the_smallest_gap(schedule: str, seconds: int) -> None:
    assert hook.smallest_gap(schedule) == seconds


FIELDS = st.tuples(
    st.sampled_from(["0", "*/7", "3-50/11", "0,59", "*"]),
    st.sampled_from(["0", "*", "9-17", "0,23", "*/5"]),
    st.sampled_from(["*", "1", "1-3", "*/10", "15,31"]),
    st.sampled_from(["*", "JAN", "3-5", "2,8"]),
    st.sampled_from(["*", "SUN", "1-5", "SAT,SUN"]),
)


@given(FIELDS)
@settings(max_examples=25, deadline=None)
def test_the_smallest_gap_is_that_of_the_slots(fields: tuple[str, ...]) -> None:
    schedule = " ".join(fields)
    slots = CronSim(schedule, datetime(2027, 1, 1, tzinfo=UTC))
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(next(slots) for _ in range(1500))]
    gap = hook.smallest_gap(schedule)
    assert gap <= min(gaps)
    if len(gaps) * min(gaps) > 2 * 366 * DAY:  # they span every kind of month
        assert gap == min(gaps) or gap >= 28 * DAY


def worst_window(budget: dict[str, int]) -> int:
    """Seconds from the slot until the last retry has ended, by the longer reading of the two limits."""
    gaps = [
        min(budget["MAX_BACKOFF"], budget["MIN_BACKOFF"] << min(attempt, budget["MAX_DOUBLINGS"]))
        for attempt in range(budget["MAX_RETRY_ATTEMPTS"])
    ]
    attempts = sum(gaps) + (budget["MAX_RETRY_ATTEMPTS"] + 1) * budget["ATTEMPT_DEADLINE"]
    duration = budget["MAX_RETRY_DURATION"] + budget["MAX_BACKOFF"] + budget["ATTEMPT_DEADLINE"]
    return max(attempts, duration)


@pytest.mark.parametrize("minutes", [2, 3, 4, 5, 6, 10, 12, 15, 20, 30])
def test_retries_end_before_the_next_slot(minutes: int) -> None:
    assert worst_window(hook.budget(f"*/{minutes} * * * *")) < minutes * 60


@pytest.mark.parametrize("schedule", ["0 * * * *", "0 */2 * * *", "0 2 * * *", "0 1 * * MON", "0 0,1,3 * * *"])
def test_retries_end_before_the_next_slot_even_when_clocks_change(schedule: str) -> None:
    gap = hook.smallest_gap(schedule)
    assert worst_window(hook.budget(schedule)) < gap - (3600 if gap > 3600 else 0)


@pytest.mark.parametrize("schedule", ["* * * * *", "*/2 * * * *", "*/5 * * * *", "*/20 * * * *", "0 2 * * *"])
def test_the_last_retry_outlasts_the_lease(schedule: str) -> None:
    budget = hook.budget(schedule)
    doubled = budget["MIN_BACKOFF"] << min(budget["MAX_RETRY_ATTEMPTS"] - 1, budget["MAX_DOUBLINGS"])
    assert min(budget["MAX_BACKOFF"], doubled) > budget["PROXY_LEASE"]
    assert budget["PROXY_LEASE"] >= budget["ATTEMPT_DEADLINE"] > budget["PROXY_TIMEOUT"]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("0 2 * * *", (90, 60, 120, 10, 180, 4, 5, 3600)),
        ("0 * * * *", (90, 60, 120, 10, 180, 4, 5, 3320)),
        ("*/15 * * * *", (90, 60, 120, 10, 180, 4, 5, 620)),
        ("*/5 * * * *", (25, 20, 40, 5, 60, 4, 5, 135)),
        ("* * * * *", (15, 10, 15, 5, 20, 2, 3, 35)),
    ],
)
def test_a_project_has_the_budget_of_its_schedule(bake: Bake, schedule: str, expected: tuple[int, ...]) -> None:
    made = load(bake(schedule=schedule))
    assert made.schedule == schedule
    budget = (
        made.attempt_deadline,
        made.proxy_timeout,
        made.proxy_lease,
        made.min_backoff,
        made.max_backoff,
        made.max_doublings,
        made.max_retry_attempts,
        made.max_retry_duration,
    )
    assert budget == expected
