"""Posts the totals of what the run has settled to a webhook.

Nobody promises that a webhook looks at the idempotency key. So an outcome that we do not know is held for a person,
who looks whether the report has arrived (`./pipeline resolve`), and is never repeated by itself. The mark just before
the call (`run.starting`) keeps the question small: what ends before it has surely posted nothing, and runs again.

Input: ``{"orders": [ids]}``. Result: the report.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError

from exactly_once import Permanent, Retry, Run, database, step

CONNECT_SECONDS = 5
ANSWER_SECONDS = 20
READ_SECONDS = 30
"""All far below the lease: no call of ours is on its way when the attempt is given up."""

ORDERS_AT_ONCE = 500
"""Orders in one report: as many as `reserve_stock` takes at once; their documents are read in one request."""

Fields = Mapping[str, Any]


@step(on_unknown="hold", marks_start=True)
def main(run: Run, payload: Any) -> dict[str, Any]:
    """Raises Permanent for an input that is no list of orders or too long, Retry where surely nothing was posted."""
    ids = payload.get("orders") if isinstance(payload, dict) else None
    if not isinstance(ids, list):
        raise Permanent('the input has no orders: the workflow gives {"orders": [ids]}')
    if len(ids) > ORDERS_AT_ONCE:
        raise Permanent(f"{len(ids)} orders; one report takes up to {ORDERS_AT_ONCE}")
    report = {
        "run_id": run.run_id,
        "slot": run.slot.isoformat() if run.slot else None,
        "orders": len(ids),
        "totals": totals(read(ids)),
    }
    run.starting()
    post(os.environ["WEBHOOK_URL"], report, run.idempotency_key)
    return report


def read(ids: list[str]) -> list[Fields]:
    """The documents of the orders `ids`. Raises Permanent if one is missing."""
    if not ids:
        return []
    orders = database().collection("orders")
    snapshots = list(database().get_all([orders.document(order) for order in ids], timeout=READ_SECONDS))
    if missing := [snapshot.id for snapshot in snapshots if not snapshot.exists]:
        raise Permanent(f"orders are missing: {', '.join(sorted(missing)[:10])}")
    return [snapshot.to_dict() or {} for snapshot in snapshots]


def totals(orders: Iterable[Fields]) -> list[dict[str, Any]]:
    """Number of orders and amount for each currency, in the currency's minor units (cents; yen; fils)."""
    sums: dict[str, list[int]] = {}
    for fields in orders:
        sums.setdefault(fields["currency"], []).append(fields["amount"])
    return [{"currency": code, "orders": len(sums[code]), "amount": sum(sums[code])} for code in sorted(sums)]


def post(url: str, report: dict[str, Any], key: str) -> None:
    """Anything but Retry and Permanent leaves the outcome unknown."""
    try:
        answer = requests.post(
            url,
            json=report,
            headers={"Idempotency-Key": key},
            timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
            allow_redirects=False,
        )
    except requests.ConnectTimeout as error:
        raise Retry(f"the webhook cannot be reached: {error}") from error
    except requests.ConnectionError as error:
        if isinstance(getattr(error.args[0], "reason", None), NewConnectionError):  # refused, or no such host
            raise Retry(f"the webhook cannot be reached: {error}") from error
        raise
    if answer.status_code == 429:
        raise Retry("the webhook asks for patience (429)")
    if 300 <= answer.status_code < 500 and answer.status_code not in (408, 409):
        raise Permanent(f"the webhook refuses the report: {answer.status_code} {answer.text[:200]}")
    answer.raise_for_status()  # 408, 409, 5xx: it may have been taken
