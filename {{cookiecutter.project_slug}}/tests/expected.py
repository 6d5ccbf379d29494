"""What a run of the sample does to the world: `./pipeline demo` and `./pipeline prove` compare with it.

It is worked out from the sample's files alone, in another way than the steps do it. Steps that the project does not
have any more are left out.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

SAMPLE = ["data/stock.csv", "data/orders.csv"]
"""Files that `./pipeline load` loads first."""

SMALL_SAMPLE = ["data/small/stock.csv", "data/small/orders.csv"]
"""What `./pipeline prove` loads before each of its many runs; the sample, if there is none."""

SLOT = "2026-01-16T02:00:00Z"
"""The slot that the demo delivers: of 240 orders 228 were placed before it."""

Fields = Mapping[str, Any]


class Effect(NamedTuple):
    """One line of the receipt; wrong if `expected` and `seen` differ."""

    name: str
    expected: object
    seen: object


def expected(documents: dict[str, dict[str, Any]], ledger: list[dict[str, Any]]) -> list[Effect]:
    """One line for each effect. `documents`: path -> fields of what is not the protocol's own; `ledger`: the calls that
    the receivers got."""
    sample = {path: fields for name in SAMPLE for path, fields in load(ROOT / name)}
    orders = below("orders", sample)
    due = sorted(
        (o for o in orders if orders[o]["placed_at"] < datetime.fromisoformat(SLOT)), key=lambda o: when(orders[o], o)
    )
    left = {sku: fields["quantity"] for sku, fields in below("stock", sample).items()}
    wanted = dict.fromkeys(orders, "open")
    for order in due:
        fields = orders[order]
        wanted[order] = "reserved" if left[fields["sku"]] >= fields["quantity"] else "short"
        if wanted[order] == "reserved":
            left[fields["sku"]] -= fields["quantity"]
    reserved = {order: orders[order] for order in due if wanted[order] == "reserved"}

    effects = []
    if has("reserve_stock"):
        found = {order: fields["status"] for order, fields in below("orders", documents).items()}
        stock = {sku: fields["quantity"] for sku, fields in below("stock", documents).items()}
        effects += [
            *(Effect(f"orders {status}", count, counts(found)[status]) for status, count in counts(wanted).items()),
            Effect("orders in the wrong status", 0, differing(wanted, found)),
            Effect("articles in stock, in all", sum(left.values()), sum(stock.values())),
            Effect("articles with a wrong stock", 0, differing(left, stock)),
        ]
    if has("charge_orders"):
        charges = [row["body"] for row in ledger if row["receiver"] == "PAYMENT_URL" and row["outcome"] == "first"]
        times = Counter(charge["order"] for charge in charges)
        effects += [
            Effect("payments", len(reserved), len(charges)),
            Effect("orders charged twice or more", 0, sum(count > 1 for count in times.values())),
            Effect("reserved orders that were not charged", 0, len(reserved.keys() - times.keys())),
            Effect("currencies with a wrong sum charged", 0, differing(sums(reserved.values()), sums(charges))),
        ]
    if has("publish_report"):
        reports = [row["body"] for row in ledger if row["receiver"] == "WEBHOOK_URL" and row["outcome"] == "first"]
        reported = [total for report in reports for total in report["totals"]]
        effects += [
            Effect("reports", 1, len(reports)),
            Effect("currencies with a wrong sum reported", 0, differing(sums(reserved.values()), sums(reported))),
        ]
    return effects


def load(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """The documents that data/load.py makes of `file`."""
    spec = importlib.util.spec_from_file_location("sample", ROOT / "data" / "load.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.documents(file))


def has(step: str) -> bool:
    return (ROOT / "functions" / step).exists()


def below(collection: str, documents: Mapping[str, Fields]) -> dict[str, Fields]:
    """The documents of a collection by id."""
    return {path.split("/")[1]: fields for path, fields in documents.items() if path.startswith(f"{collection}/")}


def when(order: Fields, name: str) -> tuple[datetime, str]:
    return order["placed_at"], name


def counts(statuses: Mapping[str, object]) -> Counter[object]:
    return Counter(statuses.values())


def differing(wanted: Mapping[str, object], found: Mapping[str, object]) -> int:
    """How many keys of either have another value in the other, or none."""
    return sum(wanted.get(key) != found.get(key) for key in wanted.keys() | found.keys())


def sums(of: Iterable[Fields]) -> Counter[str]:
    """The amount in each currency, in its minor units."""
    total: Counter[str] = Counter()
    for fields in of:
        total[fields["currency"]] += fields["amount"]
    return total
