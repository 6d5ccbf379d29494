"""The clock that jumps: it skips waiting, never work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.emulators.clock import JumpClock, OffsetClock, OffsetFile

DAY = 86_400.0


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[JumpClock]:
    clock = JumpClock(OffsetFile(tmp_path / "offset"), quiet=0.01)
    yield clock
    clock.stop()


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_lone_sleeper_is_woken_after_its_time_on_this_clock(clock: JumpClock) -> None:
    before, real = clock.now(), time.monotonic()
    assert clock.sleep(DAY) is False
    assert clock.now() >= before + DAY
    assert time.monotonic() - real < DAY / 100
    assert clock.jumps == 1


def test_another_process_reads_the_same_time(clock: JumpClock, tmp_path: Path) -> None:
    clock.sleep(DAY)
    assert abs(OffsetClock(OffsetFile(tmp_path / "offset")).now() - clock.now()) < DAY / 100


def test_sleepers_wake_in_the_order_of_their_deadlines_one_instant_at_a_time(clock: JumpClock) -> None:
    woken: list[tuple[int, float]] = []

    def sleeper(hours: int) -> None:
        with clock.busy():
            clock.sleep(hours * 3600)
            woken.append((hours, clock.now()))

    begin = clock.now()
    with clock.busy():
        threads = [started(lambda hours=hours: sleeper(hours)) for hours in (3, 1, 4, 2)]  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert [hours for hours, _ in woken] == [1, 2, 3, 4]
    for hours, at in woken:
        assert hours * 3600 <= at - begin < hours * 3600 + 1800


def test_time_does_not_jump_while_work_is_in_flight(clock: JumpClock) -> None:
    hold = clock.hold()
    hold.on()
    thread = started(lambda: clock.sleep(DAY))
    thread.join(0.2)
    assert thread.is_alive() and clock.jumps == 0
    hold.off()
    hold.off()  # switching off twice takes one mark away
    thread.join()
    assert clock.jumps == 1 and clock.in_flight() == 0


def test_who_sleeps_is_not_busy_meanwhile_and_is_busy_again_at_once(clock: JumpClock) -> None:
    with clock.busy(), clock.busy():
        clock.sleep(DAY)
        assert clock.in_flight() == 2
    assert clock.in_flight() == 0


def test_who_keeps_a_busy_one_waiting_lets_time_go_on(clock: JumpClock) -> None:
    hold = clock.hold()
    hold.on()
    with clock.waiting():
        clock.sleep(DAY)
    assert clock.jumps == 1 and clock.in_flight() == 1


def test_an_event_ends_the_sleep_before_its_time(clock: JumpClock) -> None:
    wake = threading.Event()
    answers: list[bool] = []
    hold = clock.hold()
    hold.on()
    thread = started(lambda: answers.append(clock.sleep(DAY, wake)))
    wake.set()
    thread.join()
    assert answers == [True] and clock.jumps == 0


def test_a_jump_ends_a_sleep_that_has_an_event(clock: JumpClock) -> None:
    assert clock.sleep(DAY, threading.Event()) is False


def test_the_clock_can_be_set(clock: JumpClock) -> None:
    clock.set(1_700_000_000.0)
    assert abs(clock.now() - 1_700_000_000.0) < DAY
