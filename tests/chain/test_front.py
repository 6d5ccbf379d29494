"""The Cloud Run front and the processes behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.chain import Cloud
from tools.emulators.faults import Action, Fault


def fault(action: Action, nth: int = 1, code: int | None = None, seconds: float = 0.0) -> Fault:
    """On the hop of these tests."""
    return Fault(action, "workflows", "step", "POST", nth, 1, code, seconds)


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait in real time for what another thread or process is about to do."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.005)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_request_starts_the_process_and_gets_its_answer_and_a_trace(cloud: Cloud) -> None:
    assert cloud.service.instances == []
    first, second = cloud.call(), cloud.call()
    assert first.status_code == 200 and first.json()["pid"] == second.json()["pid"]
    assert first.json()["trace"].endswith(";o=1") and first.json()["trace"] != second.json()["trace"]
    assert cloud.bodies() == 2


@pytest.mark.parametrize(
    ("token", "status"),
    [({"audience": "http://elsewhere"}, 401), ({"email": "stranger@p"}, 403)],
)
def test_a_call_without_the_right_token_does_not_reach_the_function(
    cloud: Cloud, token: dict[str, str], status: int
) -> None:
    assert cloud.call(token=token).status_code == status
    assert httpx.post(cloud.url, trust_env=False).status_code == 401
    assert cloud.service.instances == [] and cloud.plan.calls == []
    assert cloud.events() == ["front.refused"] * 2


def test_the_caller_gets_504_at_the_time_out_and_the_body_runs_on(cloud: Cloud) -> None:
    cloud.call()
    before = cloud.clock.now()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(cloud.call, {"wait": True})
        until(lambda: cloud.bodies() == 2)
        assert cloud.clock.now() - before < 200  # a body at work keeps time from jumping
        cloud.service.freeze()
        assert answer.result().status_code == 504
        assert cloud.clock.now() - before >= 300
    cloud.service.resume()
    cloud.release()
    until(lambda: "front.late_answer" in cloud.events())


def test_an_exception_in_the_body_shows_its_traceback_and_answers_500(cloud: Cloud) -> None:
    assert cloud.call({"fail": True}).status_code == 500
    until(lambda: "RuntimeError: the body fails" in "\n".join(str(e.get("message")) for e in cloud.log.all()))


def test_a_function_that_does_not_start_answers_503_and_says_why(cloud: Cloud) -> None:
    (cloud.room / "main.py").write_text("import no_such_module\n")
    assert cloud.call().status_code == 503
    broken = [event for event in cloud.log.all() if event["event"] == "process.broken"]
    assert "No module named 'no_such_module'" in broken[0]["message"]


def test_a_killed_process_breaks_its_request_and_the_next_one_starts_another(cloud: Cloud) -> None:
    pid = cloud.call().json()["pid"]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(cloud.call, {"wait": True})
        until(lambda: cloud.bodies() == 2)
        cloud.service.kill()
        assert answer.result().status_code == 503
    assert gone(pid) and cloud.clock.in_flight() == 0
    assert cloud.call().json()["pid"] != pid


def test_a_frozen_process_is_a_zombie_beside_the_new_one(cloud: Cloud) -> None:
    pid = cloud.call().json()["pid"]
    with ThreadPoolExecutor(1) as pool:
        zombie = pool.submit(cloud.call, {"wait": True})
        until(lambda: cloud.bodies() == 2)
        cloud.service.freeze()
        other = cloud.call().json()["pid"]
        assert other != pid
        assert zombie.result().status_code == 504
    cloud.release()
    assert "front.late_answer" not in cloud.events()
    cloud.service.resume()
    until(lambda: "front.late_answer" in cloud.events())
    assert cloud.call().json()["pid"] == other  # and the zombie, with nothing to do, is ended
    assert gone(pid)


@pytest.mark.parametrize("cloud", ["request"], indirect=True)
def test_with_request_billing_the_body_stands_still_after_the_time_out(cloud: Cloud) -> None:
    pid = cloud.call().json()["pid"]
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(cloud.call, {"wait": True})
        until(lambda: cloud.bodies() == 2)
        cloud.service.instances[0].freeze(True)  # stands for a body that needs longer than the time-out
        assert late.result().status_code == 504
        cloud.service.instances[0].freeze(False)
        cloud.service.instances[0].begin()
        cloud.service.instances[0].gave_up(True)  # nobody listens any more
    cloud.release()
    assert "front.late_answer" not in cloud.events()
    assert cloud.call().json()["pid"] == pid  # a request gives it the CPU again
    until(lambda: "front.late_answer" in cloud.events())


def test_restart_replaces_the_process(cloud: Cloud) -> None:
    pid = cloud.call().json()["pid"]
    cloud.service.restart()
    assert cloud.call().json()["pid"] != pid and gone(pid)


@pytest.mark.parametrize(
    ("injected", "bodies", "seen"),
    [
        (fault(Action.LOSE_REQUEST), 0, "broken"),
        (fault(Action.LOSE_REQUEST, code=429), 0, 429),
        (fault(Action.LOSE_ANSWER), 1, "broken"),
        (fault(Action.LOSE_ANSWER, code=500), 1, 500),
        (fault(Action.DROP), 1, "broken"),
        (fault(Action.TWICE), 2, 200),
        (fault(Action.AGAIN), 2, 200),
        (fault(Action.DELAY, seconds=1000), 1, 200),
        (fault(Action.DELAY_ANSWER, seconds=1000), 1, 200),
        (fault(Action.LATE, seconds=1000), 1, "broken"),
        (fault(Action.KILL_CALLEE), 1, "broken"),
    ],
    ids=lambda value: value.action.value if isinstance(value, Fault) else str(value),
)
def test_faults_of_a_call(shared_cloud: Cloud, injected: Fault, bodies: int, seen: int | str) -> None:
    shared_cloud.service.ensure()
    shared_cloud.plan.add(injected)
    before = shared_cloud.clock.now()
    try:
        got: int | str = shared_cloud.call().status_code
    except httpx.RemoteProtocolError:
        got = "broken"
    assert got == seen
    if injected.action is Action.LATE:
        assert shared_cloud.bodies() == 0
    until(lambda: shared_cloud.bodies() >= bodies)
    assert shared_cloud.bodies() == bodies
    assert shared_cloud.clock.now() - before >= injected.seconds
    assert shared_cloud.plan.pending() == []
    assert shared_cloud.call().status_code == 200  # the next call is not touched


def test_a_call_that_hangs_ends_with_its_caller(shared_cloud: Cloud) -> None:
    shared_cloud.plan.add(fault(Action.HANG))
    token = shared_cloud.tokens.mint(shared_cloud.url, "w@p", shared_cloud.clock.now())
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            shared_cloud.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=0.2,
            trust_env=False,
        )
    assert shared_cloud.bodies() == 0


SUPERVISOR = """
import sys, time
from pathlib import Path
from tests.support.chain import SECRET, Cloud
from tools.emulators.clock import JumpClock, OffsetFile
from tools.emulators.tokens import Tokens
room = Path(sys.argv[1])
cloud = Cloud(room, JumpClock(OffsetFile(room / "offset")), Tokens(SECRET), "instance")
print(cloud.call().json()["pid"], cloud.service.instances[0].child.pid, flush=True)
time.sleep(600)
"""


def test_no_child_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)], env=env, stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout
    pids = [int(pid) for pid in supervisor.stdout.readline().split()]
    assert len(pids) == 2 and not any(gone(pid) for pid in pids)
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.wait()
    supervisor.stdout.close()
    until(lambda: all(gone(pid) for pid in pids))


def test_concurrent_requests_share_one_process(cloud: Cloud) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(cloud.call, {"wait": True}) for _ in range(4)]
        until(lambda: cloud.bodies() == 4)
        cloud.release()
        assert len({answer.result().json()["pid"] for answer in answers}) == 1
    until(lambda: cloud.clock.in_flight() == 0)
