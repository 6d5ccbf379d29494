"""Who a run is: the recipes, to the byte, and what gives the same identity."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from exactly_once.encoding import RESULT_LIMIT, canonical, digest, result_text
from exactly_once.errors import BadResult, Refusal
from exactly_once.identity import (
    RunContext,
    idempotency_key,
    instant_text,
    manual_run,
    parse_instant,
    run_id,
    slot_run,
    step_path,
)

SLOT = parse_instant("2026-01-15T02:00:00Z")


def test_recipe_to_the_byte() -> None:
    """A change here makes every run new: only with a new recipe version."""
    text = '[1,"shop","p/r/prod","schedule","nightly@2026-01-15T02:00:00Z"]'
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert slot_run("shop", "p/r/prod", "nightly", SLOT, "UTC").run_id == expected
    key = f'[1,"idempotency key","{expected}","charge",null]'
    assert idempotency_key(expected, "charge") == hashlib.sha256(key.encode()).hexdigest()
    item = f'[1,"idempotency key","{expected}","charge","é"]'
    assert idempotency_key(expected, "charge", "é") == hashlib.sha256(item.encode()).hexdigest()
    assert step_path("shop", expected, "charge") == f"shop_runs/{expected}/shop_steps/charge"
    hashed = hashlib.sha256("é".encode()).hexdigest()
    assert step_path("shop", expected, "charge", "é") == f"shop_runs/{expected}/shop_steps/charge:{hashed}"


@pytest.mark.parametrize(
    "text", ["2026-01-15T02:00:00Z", "2026-01-15t02:00:00z", "2026-01-14T19:00:00-07:00", "2026-01-15T02:00:00.000Z"]
)
def test_one_instant_is_one_slot(text: str) -> None:
    assert slot_run("p", "s", "j", parse_instant(text), "UTC") == slot_run("p", "s", "j", SLOT, "UTC")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-15",
        "2026-01-15T02:00:00",
        "2026-01-15 02:00:00Z",
        "2026-13-15T02:00:00Z",
        "20260115T020000Z",
        "0001-01-01T00:00:00+14:00",  # the year 0 in UTC
        "9999-12-31T23:59:59Z",  # the year 10000 in Auckland
    ],
)
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(ValueError):
        parse_instant(text)


def test_everything_in_the_identity_tells_runs_apart() -> None:
    base = slot_run("p", "s", "j", SLOT, "UTC").run_id
    others = {
        slot_run("q", "s", "j", SLOT, "UTC").run_id,
        slot_run("p", "t", "j", SLOT, "UTC").run_id,
        slot_run("p", "s", "k", SLOT, "UTC").run_id,
        slot_run("p", "s", "j", SLOT.replace(hour=3), "UTC").run_id,
        slot_run("p", "s", "j", SLOT, "UTC", forced=True).run_id,
        manual_run("p", "s", "j@2026-01-15T02:00:00Z").run_id,
        run_id("p", "s", "manual", "k"),
    }
    assert len(others | {base}) == 8
    assert slot_run("p", "s", "j", SLOT, "Europe/Berlin").run_id == base


def test_context_survives_json() -> None:
    run = slot_run("shop", "s", "nightly", SLOT, "Europe/Berlin")
    assert run.to_json()["slot"] == "2026-01-15T02:00:00Z"
    assert run.to_json()["local"] == "2026-01-15T03:00:00+01:00"
    again = RunContext.from_json(run.to_json())
    assert again == run
    assert again.slot == datetime(2026, 1, 15, 2, tzinfo=UTC)
    manual = manual_run("shop", "s", "k")
    assert RunContext.from_json(manual.to_json()) == manual


@pytest.mark.parametrize(
    "changed", [{"run_id": "AB" * 32}, {"kind": "other"}, {"slot": 5}, {"local": "noon"}, {"key": None}, {"job": 1}]
)
def test_malformed_context_names_the_field(changed: dict[str, object]) -> None:
    context = {**manual_run("shop", "s", "k").to_json(), **changed}
    with pytest.raises(Refusal, match=rf"run\.{next(iter(changed))}"):
        RunContext.from_json(context)


def test_instant_text_is_utc() -> None:
    assert instant_text(parse_instant("2026-01-15T03:00:00.5+01:00")) == "2026-01-15T02:00:00.500000Z"


def test_canonical_json() -> None:
    assert canonical({"b": 1.0, "a": [True, None, 1.5, "é"]}) == '{"a":[true,null,1.5,"é"],"b":1}'
    assert digest({"a": 1, "b": 2}) == digest({"b": 2.0, "a": 1})
    assert digest([1, 2]) != digest([2, 1])
    assert digest(True) != digest(1)
    assert digest("\ud800") != digest("?")
    with pytest.raises(ValueError):
        canonical(float("nan"))


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ({"n": __import__("decimal").Decimal("1.5")}, r"return str\(value\)"),
        ([datetime(2026, 1, 1)], "isoformat"),
        (b"x", "b64encode"),
        ({1, 2}, "sorted"),
        (object(), "dict, list"),
        (float("inf"), "infinities"),
        ({("a", "b"): 1}, "not JSON"),
        ("\ud800", "surrogate"),
        ([{1: "a", "1": "b"}], "one name"),
        ({True: "a", "true": "b"}, "one name"),
        pytest.param(10**5000, "4300 digits", id="10**5000"),
        ("x" * (RESULT_LIMIT - 1), "store it"),
    ],
)
def test_bad_results_say_what_to_do(value: object, advice: str) -> None:
    with pytest.raises(BadResult, match=advice):
        result_text(value)


def test_largest_result() -> None:
    assert len(result_text("é" * (RESULT_LIMIT // 2 - 1)).encode()) == RESULT_LIMIT


def test_endless_result_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadResult):
        result_text(endless)
