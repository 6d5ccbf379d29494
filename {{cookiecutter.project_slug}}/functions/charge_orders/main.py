"""Charges one order at the payment API: one call, with the idempotency key of this run and order.

The workflow calls this step once an order, many at a time. An outcome that we do not know (a time-out, a broken
connection, a fault of their server) is repeated with the same key, under which the API charges once.

Input: ``{"order": id}``. Result: ``{"payment": the API's id}``.
"""

from __future__ import annotations

import os
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError

from exactly_once import Permanent, Retry, Run, database, step

CONNECT_SECONDS = 5
ANSWER_SECONDS = 20
"""Both far below the lease: no call of ours is on its way when another attempt may begin."""


@step(on_unknown="retry")
def main(run: Run, payload: Any) -> dict[str, str]:
    """Raises Permanent for an order that cannot be charged, Retry where surely nothing was charged yet."""
    order = payload.get("order") if isinstance(payload, dict) else None
    if not isinstance(order, str) or not order:
        raise Permanent('the input has no order: the workflow gives {"order": id}')
    fields = database().collection("orders").document(order).get(timeout=10).to_dict()
    if fields is None or fields["status"] != "reserved":
        raise Permanent(f"order {order} is not there or not reserved; only a reserved order is charged")
    charge = {
        "order": order,
        "amount": fields["amount"],
        "currency": fields["currency"],
        "customer": fields["customer"],
    }
    return {"payment": post(os.environ["PAYMENT_URL"] + "/charges", charge, run.idempotency_key)}


def post(url: str, charge: dict[str, Any], key: str) -> str:
    """The id of the payment. Anything but Retry and Permanent leaves the outcome unknown."""
    try:
        answer = requests.post(
            url,
            json=charge,
            headers={"Idempotency-Key": key},
            timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
            allow_redirects=False,
        )
    except requests.ConnectTimeout as error:
        raise Retry(f"the payment API cannot be reached: {error}") from error
    except requests.ConnectionError as error:
        if isinstance(getattr(error.args[0], "reason", None), NewConnectionError):  # refused, or no such host
            raise Retry(f"the payment API cannot be reached: {error}") from error
        raise
    if answer.status_code == 429:
        raise Retry("the payment API asks for patience (429)")
    if 300 <= answer.status_code < 500 and answer.status_code not in (408, 409):
        raise Permanent(f"the payment API refuses the charge: {answer.status_code} {answer.text[:200]}")
    answer.raise_for_status()  # 408, 409 (the same key is being worked on), 5xx: it may have been charged
    return str(answer.json()["id"])
