"""Works through many items: the workflow calls it with a chunk of items at a time, several chunks side by side.

Each item has a record and a key of its own: a repeat of a chunk skips the items that are done.

Input: ``{"items": [name or {"item": name, "input": any}, ...]}`` (names are the items' identity, unique in a run).
Result: the list of the items' results, in order. `main` gets one item: its name is `run.item`.
"""

from __future__ import annotations

import os
from typing import Any

from exactly_once import Run, chunk_step, database

SECONDS = 30
"""For one write; far below the lease."""


@chunk_step(on_unknown="retry", concurrency=8)
def main(run: Run, payload: Any) -> dict[str, Any]:
    """One item. The default sets the document of the item's key: a repeat sets the same again."""
    document = database().collection(os.environ["STEP"]).document(run.idempotency_key)
    document.set({"item": run.item, "slot": run.slot, "input": payload}, timeout=SECONDS)
    return {"item": run.item}
