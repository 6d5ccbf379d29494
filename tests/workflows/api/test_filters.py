"""Filters and orders of list requests, as AIP-160 and AIP-132 define them."""

from __future__ import annotations

import pytest

from tools.emulators.workflows import filters
from tools.emulators.workflows.executions import FIELDS
from tools.emulators.workflows.resources import Resource
from tools.emulators.workflows.status import ApiError


def execution(number: int, state: str, **more: object) -> Resource:
    return {
        "name": f"projects/p/locations/l/workflows/w/executions/e{number}",
        "state": state,
        "createTime": f"2026-01-15T0{number}:00:00.000000Z",
        "startTime": f"2026-01-15T0{number}:00:00.500000Z",
        "workflowRevisionId": "000001-abc",
        **more,
    }


ITEMS = [
    execution(1, "SUCCEEDED", endTime="2026-01-15T01:00:10.000000Z", duration="9.500000s", labels={"run": "a" * 63}),
    execution(
        2, "FAILED", endTime="2026-01-15T02:01:40.000000Z", duration="99.500000s", labels={"run": "b", "x-y": "1"}
    ),
    execution(3, "ACTIVE", labels={}, status={"currentSteps": [{"routine": "main", "step": "wait"}]}),
]


def passing(text: str | None) -> str:
    test = filters.compile_filter(text, FIELDS)
    return "".join(item["name"][-1] for item in ITEMS if test(item))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "123"),
        ("  ", "123"),
        ('state="SUCCEEDED"', "1"),
        ("state = FAILED", "2"),
        ("state:ACTIVE", "3"),
        ('state!="ACTIVE"', "12"),
        (f'labels.run="{"a" * 63}"', "1"),
        (f'label.run="{"a" * 63}"', "1"),
        ("labels.run = b", "2"),
        ("labels.x-y=1", "2"),
        ("labels:run", "12"),
        ("labels.run:*", "12"),
        ("labels:*", "12"),
        ("labels.run:b", "2"),
        ('labels.run!="b"', "13"),
        ('labels.run="a*"', "1"),
        ('labels.run="[a]*"', ""),
        ('startTime>"2026-01-15T01:30:00Z"', "23"),
        ("start_time >= 2026-01-15T02:00:00.5Z", "23"),
        ('startTime<"2026-01-15T02:30:00+01:00"', "1"),
        ('createTime>"2026-01-14"', "123"),
        ('endTime<"2027-01-01"', "12"),
        ("duration>10s", "2"),
        ("duration<=9.5", "1"),
        ('executionId="e2"', "2"),
        ("executionID=e2", "2"),
        ("workflowRevisionID=000001-abc", "123"),
        ('stepName="wait"', "3"),
        ("stepName:wait", "3"),
        ("disableConcurrencyQuotaOverflowBuffering=false", "123"),
        ('startTime>"2023-08-01" AND state="FAILED"', "2"),
        ('startTime>"2023-08-01" state="FAILED"', "2"),
        ("state=ACTIVE OR state=FAILED", "23"),
        ("labels:run AND state=SUCCEEDED OR state=ACTIVE", "1"),
        ("(labels:run AND state=SUCCEEDED) OR state=ACTIVE", "13"),
        ("NOT state=ACTIVE", "12"),
        ("-state=ACTIVE", "12"),
        ("NOT (state=ACTIVE OR state=FAILED)", "1"),
        ("state='FAILED'", "2"),
        (r'labels.run="a\"b"', ""),
    ],
)
def test_filter(text: str | None, found: str) -> None:
    assert passing(text) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("colour=red", "unknown field 'colour'"),
        ("state", "expected an operator"),
        ("state=", "expected a value"),
        ("=x", "expected a field"),
        ("(state=ACTIVE", r"'\)' is missing"),
        ("state=ACTIVE)", "unexpected"),
        ("state>ACTIVE", "does not fit"),
        ("startTime>yesterday", "not a time"),
        ("duration>long", "not a duration"),
        ("labels=run", "is a map"),
        ("state.x=1", "has no field"),
        ("stepName>a", "only ':'"),
        ("state=ACTIVE AND", "expected a field"),
        ('state="open', "cannot read"),
    ],
)
def test_a_bad_filter_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ApiError, match=reason) as caught:
        passing(text)
    assert caught.value.status == "INVALID_ARGUMENT"


def ordered(text: str | None) -> str:
    return "".join(item["name"][-1] for item in filters.sorted_by(ITEMS, text, FIELDS, "createTime desc"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "321"),
        ("", "321"),
        ("createTime", "123"),
        ("create_time asc", "123"),
        ("startTime desc", "321"),
        ("duration desc", "321"),  # an execution without an end has lasted longest
        ("state, executionId desc", "321"),
        ("workflowRevisionId,startTime desc", "321"),
    ],
)
def test_order(text: str | None, found: str) -> None:
    assert ordered(text) == found


@pytest.mark.parametrize("text", ["colour", "startTime up", "startTime,", "labels", "a b c"])
def test_a_bad_order_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="orderBy"):
        ordered(text)
