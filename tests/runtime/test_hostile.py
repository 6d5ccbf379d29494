"""What authors, receivers and callers may do to the runtime: odd texts, verdicts and bodies, the end of the process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from exactly_once.chunks import Chunk
from exactly_once.encoding import ERROR_LIMIT
from exactly_once.errors import Permanent, Retry
from exactly_once.external import External, OnUnknown
from exactly_once.protocol import Claim, Offer
from exactly_once.steps import chunk_step, step, transactional_step
from exactly_once.transactional import Transactional
from tests.runtime.bench import Bench, Effects, external, raising
from tools.emulators.faults import Action, Fault

UNDECODABLE = b"caf\xe9".decode("utf-8", "surrogateescape")
"""As file names and careless clients of receivers have it: text that no database takes."""


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.fixture
def firestore_kind() -> str:
    """What is tested here happens before anything is sent, or is the same on every server."""
    return "embedded"


@pytest.mark.parametrize("error", [OSError(UNDECODABLE), SpeechlessError()], ids=["undecodable", "speechless"])
@pytest.mark.parametrize(("on_unknown", "status"), [("hold", "unknown"), ("retry", "released")])
def test_unknown_outcome_is_recorded_whatever_it_says(
    bench: Bench, error: Exception, on_unknown: OnUnknown, status: str
) -> None:
    bench.call(external(raising(error), on_unknown))
    assert bench.status() == status
    record = bench.record()
    assert record
    assert record["error"].startswith(type(error).__name__)


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [(Retry(UNDECODABLE), "retry", "released"), (Permanent(UNDECODABLE), "failed", "failed")],
)
def test_what_an_author_says_is_recorded_whatever_it_is(bench: Bench, error: Exception, code: str, status: str) -> None:
    assert bench.call(external(raising(error))).code == code
    assert bench.status() == status


def test_permanent_of_a_transactional_step_is_recorded_whatever_it_says(bench: Bench) -> None:
    def body(transaction: Any, run: Any, payload: Any) -> Any:
        raise Permanent(UNDECODABLE)

    assert bench.call(Transactional(body)).code == "failed"
    assert bench.status() == "failed"


def test_long_error_is_cut_in_record_answer_and_log(bench: Bench) -> None:
    answer = bench.call(external(raising(Permanent("no such order: " + "x" * 2_000_000))))
    assert answer.json["error"]["message"].startswith("no such order")
    assert len(answer.json["error"]["message"]) == ERROR_LIMIT
    assert len(bench.seen("step.failed")[0]["reason"]) == ERROR_LIMIT


@pytest.mark.parametrize("answer", [None, True, {"id": 7}])
def test_verify_that_answers_nothing_known_is_no_answer(bench: Bench, answer: Any) -> None:
    """In particular it leaves nothing in progress, and is told what to answer."""
    held = external(raising(TimeoutError("who knows")), "hold", lambda run, payload: answer)
    assert bench.call(held).code == "held"
    assert bench.status() == "unknown"
    assert any("Done(result), NOT_DONE or UNKNOWN" in event["reason"] for event in bench.seen("step.error"))


async def _async(run: Any, payload: Any) -> Any:
    raise AssertionError("nothing awaits it")


def _generator(run: Any, payload: Any) -> Any:
    yield run


async def _async_generator(run: Any, payload: Any) -> Any:
    yield run


@pytest.mark.parametrize("body", [_async, _generator, _async_generator])
def test_bodies_that_a_call_does_not_run_are_refused_at_import(body: Any) -> None:
    """Each call of one would look like an effect that is done, with a result that cannot be kept."""
    for declare in (
        transactional_step,
        step(on_unknown="retry"),
        chunk_step(on_unknown="hold"),
        lambda verify: step(on_unknown="hold", verify=verify)(lambda run, payload: None),
    ):
        with pytest.raises(TypeError, match=r"plain function"):
            declare(body)


def test_no_threads_are_refused_at_import() -> None:
    with pytest.raises(ValueError, match="at least one"):
        chunk_step(on_unknown="retry", concurrency=0)


def test_process_ends_even_if_firestore_does_not_answer(bench: Bench) -> None:
    def act(run: Any, payload: Any) -> Any:
        bench.plan.add(Fault(Action.LOSE_REQUEST, code="UNAVAILABLE", times=1000))
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        bench.call(external(act, "hold"))
    bench.plan.clear()
    assert bench.status() == "in_progress"
    assert "SystemExit, and not recorded" in bench.seen("step.error")[0]["reason"]


def test_end_of_the_process_begins_no_other_item(bench: Bench) -> None:
    ended = threading.Event()
    began: list[str] = []

    def act(run: Any, payload: Any) -> Any:
        began.append(run.item)
        if run.item == "second":
            ended.set()
            raise SystemExit(1)
        ended.wait(30.0)

    with pytest.raises(SystemExit):
        bench.call(Chunk(external(act), 2), {"items": ["first", "second", *map(str, range(50))]})
    assert len(began) < 10
    assert bench.status("second") == "released"


def test_shorter_extension_takes_nothing_back(bench: Bench) -> None:
    """A keep-alive that extends by little while the body extends by much."""
    offer = Offer("an id", 20.0, {}, lambda seen: False)
    claim = bench.protocol.claim(bench.path(), offer)
    assert isinstance(claim, Claim)
    keeper = threading.Thread(target=lambda: bench.protocol.extend(claim, 30, 330))
    with claim.lock:
        keeper.start()
        keeper.join(0.1)  # it is about to write
        bench.protocol.extend(claim, 300, 330)
    keeper.join()
    record = bench.record()
    assert record
    assert record["lease_seconds"] >= 300


def test_extension_by_no_number_writes_nothing(bench: Bench) -> None:
    leases: list[Any] = []

    def act(run: Any, payload: Any) -> Any:
        with pytest.raises(ValueError, match="NaN"):
            run.extend(float("nan"))
        for seconds in (0, -1, float("nan")):
            with pytest.raises(ValueError, match="above 0"), run.keep_alive(seconds):
                raise AssertionError("the context was entered")
        leases.append(bench.record())

    assert bench.call(External(act, "retry")).status == 200
    assert leases[0]["lease_seconds"] == bench.lease


def test_names_that_look_alike_are_two_items(bench: Bench) -> None:
    """Item identity is the caller's string: nothing is normalised."""
    names = ["é", "e\u0301", "E\u0301", "a:b", "a/b", " a", "a"]
    body = Effects(lambda run, payload: run.item)
    assert bench.call(Chunk(external(body), 1), {"items": names}).result == names
    assert len(body) == len(names)
