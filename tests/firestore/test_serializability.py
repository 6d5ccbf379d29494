"""Transactions from several processes: what they read and wrote can be put in one order.

Each appends its name to some of the lists that it has read. The lists then say who came before whom.
"""

from __future__ import annotations

import graphlib
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.firestore.appending import LISTS

ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    name: str
    committed: bool
    appends: list[int]
    seen: dict[int, list[str]]


def run_workers(address: str, collection: str, workers: int, threads: int, transactions: int) -> list[Outcome]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.firestore.appending", address, collection]
            + [str(each) for each in (worker, threads, transactions)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / '{{cookiecutter.project_slug}}'}"},
        )
        for worker in range(workers)
    ]
    outcomes = []
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0
        for line in output.splitlines():
            name, committed, appends, seen = json.loads(line)
            outcomes.append(Outcome(name, committed, appends, {int(key): names for key, names in seen.items()}))
    return outcomes


def check_serializable(outcomes: list[Outcome], lists: dict[int, list[str]]) -> None:
    """Raises graphlib.CycleError if there is no order."""
    committed = {outcome.name: outcome for outcome in outcomes if outcome.committed}
    before: dict[str, set[str]] = {name: set() for name in committed}
    for number, names in lists.items():
        assert len(set(names)) == len(names)
        assert set(names) == {name for name, outcome in committed.items() if number in outcome.appends}
        for earlier, later in itertools.pairwise(names):
            before[later].add(earlier)
    for name, outcome in committed.items():
        for number, seen in outcome.seen.items():
            names = lists[number]
            assert names[: len(seen)] == seen
            if number in outcome.appends:
                assert names[len(seen)] == name
            elif len(names) > len(seen):
                before[names[len(seen)]].add(name)  # it read what the next one changed
            if seen:
                before[name].add(seen[-1])
    list(graphlib.TopologicalSorter(before).static_order())


def check(firestore: Any, address: str, collection: str, workers: int, threads: int, transactions: int) -> None:
    outcomes = run_workers(address, collection, workers, threads, transactions)
    assert len(outcomes) == workers * threads * transactions
    lists = {
        number: (firestore.collection(collection).document(str(number)).get().to_dict() or {}).get("names", [])
        for number in range(LISTS)
    }
    check_serializable(outcomes, lists)
    assert sum(outcome.committed for outcome in outcomes) > len(outcomes) / 2


def test_transactions_of_two_processes(embedded_firestore: str, connect: Any, collection: str) -> None:
    check(connect(embedded_firestore), embedded_firestore, collection, workers=2, threads=4, transactions=15)


@pytest.mark.slow
def test_transactions_of_four_processes(embedded_firestore: str, connect: Any, collection: str) -> None:
    check(connect(embedded_firestore), embedded_firestore, collection, workers=4, threads=6, transactions=60)


@pytest.mark.parametrize(
    ("outcomes", "lists"),
    [
        pytest.param([("a", [0], {0: []}), ("b", [0], {0: []})], {0: ["a", "b"]}, id="lost update"),
        pytest.param([("a", [0], {0: [], 1: []}), ("b", [1], {0: [], 1: []})], {0: ["a"], 1: ["b"]}, id="write skew"),
        pytest.param([("a", [0], {0: []})], {0: []}, id="lost write"),
        pytest.param([("a", [0], {0: ["b"]})], {0: ["a"]}, id="dirty read"),
    ],
)
def test_the_check_finds_what_is_wrong(outcomes: list[Any], lists: dict[int, list[str]]) -> None:
    history = [Outcome(name, True, appends, seen) for name, appends, seen in outcomes]
    with pytest.raises((AssertionError, graphlib.CycleError)):
        check_serializable(history, lists)
