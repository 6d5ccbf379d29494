"""What a run of the sample does to the world: `./pipeline demo` and `./pipeline prove` compare with it."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

SAMPLE: list[str] = []
"""Files that `./pipeline load` loads first."""

SLOT = "2026-01-16T02:00:00Z"
"""The slot that the demo delivers."""


class Effect(NamedTuple):
    """One line of the receipt; wrong if `expected` and `seen` differ."""

    name: str
    expected: object
    seen: object


def expected(documents: dict[str, dict[str, Any]], ledger: list[dict[str, Any]]) -> list[Effect]:
    """One line for each effect. `documents`: path -> fields of what is not the protocol's own; `ledger`: the calls that
    the receivers got. Add what your own steps should do: this line holds for any."""
    taken = Counter((row["receiver"], row["key"]) for row in ledger if row["outcome"] == "first")
    return [Effect("keys that took effect twice or more", 0, sum(count > 1 for count in taken.values()))]
