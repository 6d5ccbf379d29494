"""The receivers: a key takes effect once, whatever happens to the answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tools.emulators.clock import JumpClock
from tools.emulators.events import EventLog
from tools.emulators.faults import Action, Fault, Plan
from tools.emulators.hosting import Host, bind
from tools.emulators.http_faults import HttpFaults
from tools.emulators.receivers import Ledger, Receivers


class Processes:
    def __init__(self) -> None:
        self.signals: list[tuple[str, str]] = []

    def kill(self, name: str) -> None:
        self.signals.append(("kill", name))

    def freeze(self, name: str) -> None:
        self.signals.append(("freeze", name))

    def resume(self, name: str) -> None:
        self.signals.append(("resume", name))


@dataclass
class Room:
    url: str
    plan: Plan
    ledger: Ledger
    processes: Processes

    def post(self, key: str | None = "k1", body: object = 1, path: str = "", url: str = "") -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return httpx.post((url or self.url) + path, json=body, headers=headers, trust_env=False)

    def outcomes(self) -> list[str]:
        return [row["outcome"] for row in self.ledger.rows()]


@pytest.fixture
def room(tmp_path: Path, jump_clock: JumpClock, event_log: EventLog) -> Iterator[Room]:
    host, plan, ledger, processes = Host(jump_clock), Plan(), Ledger(tmp_path / "ledger.jsonl"), Processes()
    faults = HttpFaults(host, plan, jump_clock, processes, caller_is_a_process=True)
    receivers = Receivers(ledger, faults, jump_clock, event_log, {"charge": frozenset({"PAYMENT_URL"})})
    port = host.add(receivers.part, bind(0))
    host.start()
    yield Room(f"http://127.0.0.1:{port}/charge/PAYMENT_URL", plan, ledger, processes)
    host.stop()
    ledger.close()


def test_a_key_takes_effect_once_and_its_repeats_get_the_same_answer(room: Room) -> None:
    first, again = room.post(), room.post()
    assert first.status_code == again.status_code == 200 and first.json() == again.json()
    assert "idempotent-replayed" not in first.headers and again.headers["idempotent-replayed"] == "true"
    assert room.outcomes() == ["first", "replayed"]
    assert room.post("k2").json()["id"] != first.json()["id"]


def test_a_key_with_another_body_is_refused_and_changes_nothing(room: Room) -> None:
    room.post(body={"amount": "1.00"})
    refused = room.post(body={"amount": "2.00"})
    assert refused.status_code == 422 and refused.json()["error"]["code"] == "other_body"
    assert room.outcomes() == ["first", "other_body"]
    assert room.post(body={"amount": "1.00"}).status_code == 200


def test_without_a_key_each_call_takes_effect(room: Room) -> None:
    assert room.post(None).json()["id"] != room.post(None).json()["id"]
    assert room.outcomes() == ["first", "first"]


def test_a_row_says_what_was_asked(room: Room) -> None:
    room.post("k", {"amount": "1.10"}, "/v1/charges")
    row = room.ledger.rows()[0]
    assert row["time"].endswith("Z") and len(row["sha256"]) == 64
    assert {**row, "time": "", "sha256": "", "id": ""} == {
        "time": "",
        "receiver": "PAYMENT_URL",
        "step": "charge",
        "method": "POST",
        "path": "/v1/charges",
        "key": "k",
        "sha256": "",
        "outcome": "first",
        "status": 200,
        "id": "",
        "body": {"amount": "1.10"},
    }


def test_an_effect_can_be_looked_up_by_its_key(room: Room) -> None:
    made = room.post("k1")
    assert httpx.get(f"{room.url}/effects/k1", trust_env=False).json() == made.json()
    assert httpx.get(f"{room.url}/effects/k2", trust_env=False).status_code == 404
    assert len(httpx.get(room.url, trust_env=False).json()) == 1


def test_the_ledger_survives_a_restart_and_a_torn_line(room: Room, tmp_path: Path) -> None:
    first = room.post()
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write('{"receiver": "PAYMENT_URL", "key": "k9"')
    again = Ledger(tmp_path / "ledger.jsonl")
    assert again.rows() == room.ledger.rows()
    row = again.record(0.0, "PAYMENT_URL", "charge", "POST", "/", "k1", b"1")
    assert row["outcome"] == "replayed" and row["id"] == first.json()["id"]
    again.close()


def test_a_receiver_that_no_step_names_is_not_there(room: Room) -> None:
    root = room.url.removesuffix("/charge/PAYMENT_URL")
    assert room.post(url=root).status_code == 404
    assert room.post(url=f"{root}/charge/OTHER_URL").status_code == 404
    assert room.outcomes() == []


@pytest.mark.parametrize(
    ("action", "effects", "signals"),
    [
        (Action.LOSE_REQUEST, 0, []),
        (Action.LOSE_ANSWER, 1, []),
        (Action.KILL_BEFORE, 0, [("kill", "charge")]),
        (Action.KILL_AFTER, 1, [("kill", "charge")]),
    ],
)
def test_an_answer_that_is_lost_comes_with_the_repeat(
    room: Room, action: Action, effects: int, signals: list[tuple[str, str]]
) -> None:
    room.plan.add(Fault(action, "charge", "PAYMENT_URL"))
    with pytest.raises(httpx.RemoteProtocolError):
        room.post()
    assert room.outcomes() == ["first"] * effects and room.processes.signals == signals
    assert room.post().status_code == 200
    assert room.outcomes().count("first") == 1


def test_a_step_that_waits_for_a_delayed_answer_lets_time_go_on(room: Room, jump_clock: JumpClock) -> None:
    room.plan.add(Fault(Action.DELAY_ANSWER, "charge", "PAYMENT_URL", seconds=3600))
    before, body = jump_clock.now(), jump_clock.hold()
    body.on()
    assert room.post().status_code == 200
    body.off()
    assert jump_clock.now() - before >= 3600


def test_a_caller_that_is_frozen_gets_its_answer_when_it_goes_on(room: Room, jump_clock: JumpClock) -> None:
    room.plan.add(Fault(Action.FREEZE, "charge", "PAYMENT_URL", seconds=3600))
    before = jump_clock.now()
    assert room.post().status_code == 200
    assert room.processes.signals == [("freeze", "charge"), ("resume", "charge")]
    assert jump_clock.now() - before >= 3600
