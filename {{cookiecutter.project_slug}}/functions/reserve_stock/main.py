"""Reserves stock for every order that was open at the slot: one transaction, so all of it or nothing.

An open order carries `open_since`; once it is decided the field is gone. So one single-field index answers "what was
open at this slot", and an order that a run has taken is in no later run. An order for more than is left goes `short`
and is left to a person; the orders after it still get their chance.

Result: ``{"orders": [ids to charge], "short": [ids]}``, oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.cloud import firestore
from google.cloud.firestore import FieldFilter

from exactly_once import Permanent, Run, database, transactional_step

ORDERS_AT_ONCE = 500
"""Orders in one transaction: each is read and written, within the 10 MiB and 270 s that Firestore gives it, and the
result names each within 256 KiB."""

Fields = Mapping[str, Any]


@transactional_step
def main(transaction: firestore.Transaction, run: Run, payload: Any) -> dict[str, Any]:
    """Raises Permanent beyond `ORDERS_AT_ONCE` open orders."""
    orders = open_orders(transaction, run)
    if not orders:
        return {"orders": [], "short": []}
    skus = sorted({fields["sku"] for fields in orders.values()})
    stock = database().collection("stock")
    found = transaction.get_all([stock.document(sku) for sku in skus])
    left = {snapshot.id: snapshot.get("quantity") for snapshot in found if snapshot.exists}
    reserved, short = divide(orders, left)
    for sku, quantity in demand(orders, reserved).items():
        transaction.update(stock.document(sku), {"quantity": left[sku] - quantity})
    for ids, status in ((reserved, "reserved"), (short, "short")):
        for order in ids:
            changes = {"status": status, "run_id": run.run_id, "open_since": firestore.DELETE_FIELD}
            transaction.update(database().collection("orders").document(order), changes)
    return {"orders": reserved, "short": short}


def open_orders(transaction: firestore.Transaction, run: Run) -> dict[str, Fields]:
    """The orders that were open at the run's slot, by id, oldest first.

    A manual run without a slot takes what is open. A forced run takes what is open now, whatever its slot says: orders
    that come in before the slot are left to the slot's own run.
    """
    query = database().collection("orders").order_by("open_since")
    if run.slot is not None:
        query = query.where(filter=FieldFilter("open_since", "<", run.slot))
    snapshots = list(transaction.get(query.limit(ORDERS_AT_ONCE + 1)))
    if len(snapshots) > ORDERS_AT_ONCE:
        raise Permanent(
            f"more than {ORDERS_AT_ONCE} orders are open at {run.slot}: raise ORDERS_AT_ONCE or run more often"
        )
    return {snapshot.id: snapshot.to_dict() or {} for snapshot in snapshots}


def divide(orders: Mapping[str, Fields], stock: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Ids of the orders that `stock` serves, first come first served, and of those it does not."""
    left = dict(stock)
    reserved: list[str] = []
    short: list[str] = []
    for order, fields in orders.items():
        served = left.get(fields["sku"], 0) >= fields["quantity"]
        (reserved if served else short).append(order)
        if served:
            left[fields["sku"]] -= fields["quantity"]
    return reserved, short


def demand(orders: Mapping[str, Fields], ids: Iterable[str]) -> dict[str, int]:
    """What the orders `ids` take of each sku."""
    total: dict[str, int] = {}
    for order in ids:
        fields = orders[order]
        total[fields["sku"]] = total.get(fields["sku"], 0) + fields["quantity"]
    return total
