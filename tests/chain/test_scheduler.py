"""The Scheduler: its arithmetic, its headers, and what it does when the target fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.support.chain import Target
from tools.emulators.clock import JumpClock
from tools.emulators.events import EventLog
from tools.emulators.scheduler import (
    Job,
    OutstandingError,
    RetryPolicy,
    ScheduleError,
    Scheduler,
    rfc3339,
    slots,
)
from tools.emulators.tokens import Tokens

SLOT = datetime(2026, 1, 15, 2, 0, tzinfo=UTC)
DAILY = RetryPolicy(max_attempts=5, max_duration=3600, min_backoff=10, max_backoff=180, max_doublings=4)
Make = Callable[..., Scheduler]


@pytest.fixture
def make(jump_clock: JumpClock, event_log: EventLog, tokens: Tokens, target: Target, tmp_path: Path) -> Iterator[Make]:
    made: list[Scheduler] = []
    jump_clock.set(SLOT.timestamp() - 1)

    def scheduler(schedule: str = "0 3 * * *", **fields: object) -> Scheduler:
        settings: dict[str, object] = {"retry": DAILY, "attempt_deadline": 90.0, **fields}
        job = Job("orders", schedule, "Europe/Berlin", target.url, "s@p", target.url, **settings)  # type: ignore[arg-type]
        made.append(Scheduler(job, tokens, jump_clock, event_log, tmp_path / "scheduler.json"))
        return made[-1]

    yield scheduler
    for each in made:
        each.stop()


def test_gaps_double_then_grow_by_the_last_step_then_stay() -> None:
    documented = RetryPolicy(max_attempts=9, min_backoff=10, max_backoff=300, max_doublings=3)
    assert [documented.gap(n) for n in range(1, 9)] == [10, 20, 40, 80, 160, 240, 300, 300]
    assert [DAILY.gap(n) for n in range(1, 6)] == [10, 20, 40, 80, 160]
    assert RetryPolicy(min_backoff=5, max_backoff=20, max_doublings=0).gap(3) == 15


def test_retries_end_at_the_first_limit_that_is_reached() -> None:
    assert DAILY.next_gap(4, 100) == 160
    assert DAILY.next_gap(5, 100) is None
    assert DAILY.next_gap(4, 3600 - 160) == 160
    assert DAILY.next_gap(4, 3600 - 159) is None
    assert RetryPolicy(max_attempts=1, max_duration=0).next_gap(0, 1e9) == 5  # 0: no limit
    assert RetryPolicy().next_gap(0, 0) is None  # the default is no retry


def test_headers_are_those_of_cloud_scheduler(make: Make, target: Target, tokens: Tokens) -> None:
    scheduler = make(headers={"X-Exactly-Once-Scope": "p/r/prod"})
    assert scheduler.deliver(SLOT).succeeded
    time, headers = target.requests[0]
    assert headers["user-agent"] == "Google-Cloud-Scheduler"
    assert headers["x-cloudscheduler"] == "true"
    assert headers["x-cloudscheduler-jobname"] == "orders"
    assert headers["x-cloudscheduler-scheduletime"] == "2026-01-15T02:00:00Z"
    assert headers["x-exactly-once-scope"] == "p/r/prod"
    claims = tokens.verify(headers["authorization"].removeprefix("Bearer "), target.url, time)
    assert claims["email"] == "s@p"


def test_every_retry_of_a_slot_carries_the_same_time_and_comes_after_its_gap(make: Make, target: Target) -> None:
    target.answers = [500, 409, 404, 503, 500, 500]
    execution = make().deliver(SLOT)
    assert not execution.succeeded
    assert [attempt.status for attempt in execution.attempts] == [500, 409, 404, 503, 500, 500]
    assert len({headers["x-cloudscheduler-scheduletime"] for _, headers in target.requests}) == 1
    for seen, wanted in zip(target.gaps(), [10, 20, 40, 80, 160], strict=True):
        assert wanted <= seen < wanted + 60


def test_success_ends_the_execution(make: Make, target: Target) -> None:
    target.answers = [500, 204, 500]
    execution = make().deliver(SLOT)
    assert execution.succeeded and len(execution.attempts) == 2


def test_a_broken_connection_is_a_failed_attempt(make: Make, target: Target) -> None:
    async def broken(request: Request) -> None:
        return None

    target.answers = [broken, 200]
    execution = make().deliver(SLOT)
    assert execution.succeeded and execution.attempts[0].status is None
    assert "RemoteProtocolError" in (execution.attempts[0].error or "")


def test_an_attempt_ends_at_its_deadline_and_counts_as_failed(make: Make, target: Target) -> None:
    async def slow(request: Request) -> Response:
        with target.host.waiting(request):
            await target.host.sleep(600)
        return Response()

    target.answers = [slow, 200]
    execution = make().deliver(SLOT)
    assert execution.succeeded
    assert (execution.attempts[0].error or "").startswith("DEADLINE_EXCEEDED")
    assert 90 <= execution.attempts[0].ended - execution.attempts[0].began < 150
    assert 100 <= target.gaps()[0] < 160


def test_the_cron_delivers_every_slot_on_the_zone_s_wall_clock(
    make: Make, target: Target, jump_clock: JumpClock
) -> None:
    three = threading.Event()

    async def count(request: Request) -> Response:
        if len(target.requests) == 3:
            three.set()
        return Response()

    target.answers = [count]
    scheduler = make()
    jump_clock.set(SLOT.timestamp() - 50)
    scheduler.start()
    assert three.wait(30)
    times = [headers["x-cloudscheduler-scheduletime"] for _, headers in target.requests]
    assert times[:3] == ["2026-01-15T02:00:00Z", "2026-01-16T02:00:00Z", "2026-01-17T02:00:00Z"]


def test_retries_stop_when_the_next_slot_is_due(make: Make, target: Target, event_log: EventLog) -> None:
    target.answers = [500]
    execution = make("*/5 * * * *").deliver(SLOT)
    assert not execution.succeeded
    assert len(execution.attempts) == 5  # at 0, 10, 30, 70, 150 s; the one at 310 s would fall behind the next slot
    assert any(event["event"] == "scheduler.gave_up" for event in event_log.all())


def test_a_slot_waits_for_the_one_before_and_is_skipped_when_a_later_one_is_due(
    make: Make, target: Target, event_log: EventLog, jump_clock: JumpClock
) -> None:
    enough = threading.Event()

    async def slow(request: Request) -> Response:
        with target.host.waiting(request):
            await target.host.sleep(130)  # the slots after 1 and 2 minutes come due meanwhile
        return Response()

    async def quick(request: Request) -> Response:
        enough.set()
        return Response()

    target.answers = [slow, quick]
    scheduler = make("* * * * *", attempt_deadline=600.0)
    jump_clock.set(SLOT.timestamp() - 50)
    scheduler.start()
    assert enough.wait(30)
    skipped = [event["slot"] for event in event_log.all() if event["event"] == "scheduler.skipped"]
    times = [headers["x-cloudscheduler-scheduletime"] for _, headers in target.requests]
    assert times[:2] == ["2026-01-15T02:00:00Z", "2026-01-15T02:02:00Z"]
    assert skipped[0] == "2026-01-15T02:01:00Z"


def test_there_are_never_two_outstanding_executions(make: Make, target: Target) -> None:
    inside = threading.Event()

    async def slow(request: Request) -> Response:
        inside.set()
        with target.host.waiting(request):
            await target.host.sleep(60)
        return Response()

    target.answers = [slow]
    scheduler = make()
    thread = threading.Thread(target=scheduler.deliver, args=(SLOT,))
    thread.start()
    assert inside.wait(30)
    with pytest.raises(OutstandingError):
        scheduler.force()
    thread.join()


def test_a_forced_run_carries_the_next_slot(make: Make, target: Target) -> None:
    assert make().force().succeeded
    assert target.requests[0][1]["x-cloudscheduler-scheduletime"] == "2026-01-15T02:00:00Z"


def test_a_paused_job_delivers_nothing_and_stays_paused_after_a_restart(
    make: Make, target: Target, jump_clock: JumpClock
) -> None:
    scheduler = make()
    scheduler.pause(True)
    scheduler.start()
    jump_clock.sleep(5 * 86_400)
    scheduler.stop()
    assert target.requests == []
    assert make().paused


def test_an_execution_under_way_goes_on_after_a_restart(make: Make, target: Target, tmp_path: Path) -> None:
    done = threading.Event()

    async def last(request: Request) -> Response:
        done.set()
        return Response()

    target.answers = [last]
    begun = SLOT.timestamp() - 3600
    (tmp_path / "scheduler.json").write_text(
        json.dumps({"outstanding": {"slot": "2026-01-15T01:00:00Z", "first": begun, "retries": 2}})
    )
    make().start()
    assert done.wait(30)
    assert target.requests[0][1]["x-cloudscheduler-scheduletime"] == "2026-01-15T01:00:00Z"


@pytest.mark.parametrize("schedule", ["every 5 minutes", "0 3 * *", "61 3 * * *", "0 0 3 * * *", "@daily"])
def test_what_is_not_unix_cron_is_refused(schedule: str) -> None:
    with pytest.raises(ScheduleError):
        next(slots(schedule, "Europe/Berlin", SLOT.timestamp()))


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ScheduleError, match="Europe/Atlantis"):
        next(slots("0 3 * * *", "Europe/Atlantis", SLOT.timestamp()))


def test_summer_time_moves_slots_in_utc() -> None:
    found = slots("30 4 * * *", "Europe/Berlin", datetime(2026, 3, 27, 12, tzinfo=UTC).timestamp())
    assert [rfc3339(next(found)) for _ in range(3)] == [
        "2026-03-28T03:30:00Z",
        "2026-03-29T02:30:00Z",
        "2026-03-30T02:30:00Z",
    ]
