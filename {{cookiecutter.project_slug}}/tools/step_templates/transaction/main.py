"""Writes to Firestore in the one transaction that also records the step as done.

The default keeps one document a run and a count of all runs; put your own reads and writes in its place.

Input: any JSON. Result: ``{"count": runs so far}``.
"""

from __future__ import annotations

import os
from typing import Any

from google.cloud import firestore

from exactly_once import Run, database, transactional_step


@transactional_step
def main(transaction: firestore.Transaction, run: Run, payload: Any) -> dict[str, Any]:
    """All reads come before the first write. The body may run again, so it does nothing outside the transaction."""
    documents = database().collection(os.environ["STEP"])
    total = documents.document("total")
    snapshot = total.get(transaction=transaction)
    count = (snapshot.get("count") if snapshot.exists else 0) + 1
    transaction.set(total, {"count": count, "slot": run.slot})
    transaction.create(documents.document(run.idempotency_key), {"slot": run.slot, "input": payload, "count": count})
    return {"count": count}
