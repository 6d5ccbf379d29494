"""Random operations on both servers: see differential.py. The seed is fixed; another one: FIRESTORE_FUZZ_SEED."""

from __future__ import annotations

import os

import pytest

from tests.firestore.differential import EXCUSES, Report, compare

SEED = int(os.environ.get("FIRESTORE_FUZZ_SEED", "1"))


def check(report: Report, operations: int) -> None:
    assert not report.differences, "\n".join(map(str, report.differences))
    assert report.operations.total() == operations
    assert set(report.excused) <= set(EXCUSES)
    # It has tried something: every method, and every status that a request can meet.
    assert len(report.operations) == 13
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION"} <= set(report.codes)


def test_a_few_operations(embedded_firestore: str, official_firestore: str) -> None:
    check(compare(embedded_firestore, official_firestore, SEED, 800), 800)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_operations(embedded_firestore: str, official_firestore: str) -> None:
    check(compare(embedded_firestore, official_firestore, SEED, 24_000), 24_000)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_conflicts_with_the_locks_of_readers(own_server: object, official_firestore: str) -> None:
    """With --reader-locks, writers that meet a reader's lock are ABORTED as by Google's emulator."""
    assert callable(own_server)
    report = compare(own_server("--reader-locks"), official_firestore, SEED, 4_000, conflicts=1_000)
    assert not report.differences, "\n".join(map(str, report.differences))
    assert report.codes["ABORTED"] > 2
