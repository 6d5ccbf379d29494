"""Runs and steps as they stand, page by page, for operators.

Runs are ordered by slot, latest first: timestamps are not indexed (a field that only grows limits a collection to 500
writes a second), the slot's text is. Manual runs without a slot come last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.api_core import exceptions as api
from google.cloud import firestore
from google.cloud.firestore_v1.base_query import FieldFilter

from .firestore import snapshot_of, unreachable
from .identity import run_path
from .records import Record, Status

SECONDS = 10.0
"""What one look-up may take."""


@dataclass(frozen=True)
class Page:
    """Records by document id, and the id to go on after; None at the end."""

    records: dict[str, Record]
    next: str | None


class Lookups:
    """Reads of one pipeline's records. Every method raises Unreachable."""

    def __init__(self, client: firestore.Client, pipeline: str) -> None:
        self.client = client
        self._pipeline = pipeline

    def run(self, run_id: str) -> Record | None:
        return self._record(run_path(self._pipeline, run_id))

    def runs(
        self, *, limit: int = 50, after: str | None = None, since: str | None = None, until: str | None = None
    ) -> Page:
        """Runs, latest slot first. `since` (included) and `until` (left out) are slots as in the records (RFC 3339,
        `Z`).
        """
        query = self.client.collection(f"{self._pipeline}_runs").order_by("slot", direction="DESCENDING")
        if since:
            query = query.where(filter=FieldFilter("slot", ">=", since))
        if until:
            query = query.where(filter=FieldFilter("slot", "<", until))
        return self._page(query, self.client.document(run_path(self._pipeline, after)) if after else None, limit)

    def starting_with(self, text: str, limit: int = 10) -> dict[str, Record]:
        """The runs whose id begins with `text` (hex digits), at most `limit`."""
        runs = self.client.collection(f"{self._pipeline}_runs")
        query = runs.order_by("__name__").start_at({"__name__": runs.document(text)})
        return self._page(query.end_at({"__name__": runs.document(text + "~")}), None, limit).records

    def many(self, run_ids: list[str]) -> dict[str, Record]:
        """The runs that exist among `run_ids`."""
        found: dict[str, Record] = {}
        for start in range(0, len(run_ids), 300):
            part = [self.client.document(run_path(self._pipeline, run_id)) for run_id in run_ids[start : start + 300]]
            try:
                snapshots = list(self.client.get_all(part, retry=None, timeout=SECONDS))
            except api.GoogleAPIError as error:
                raise unreachable(error) from error
            found |= dict(_records(snapshot for snapshot in snapshots if snapshot.exists))
        return found

    def without_slot(self, limit: int = 1000) -> dict[str, Record]:
        """Runs by hand that are for no slot, in no order: nothing that is indexed tells their age."""
        query = self.client.collection(f"{self._pipeline}_runs").where(filter=FieldFilter("slot", "==", None))
        return self._page(query, None, limit).records

    def unstarted(self, limit: int = 1000) -> dict[str, Record]:
        """Runs that have no execution and may still get one: queued, released, or being started."""
        states = [Status.QUEUED.value, Status.RELEASED.value, Status.IN_PROGRESS.value]
        query = self.client.collection(f"{self._pipeline}_runs").where(filter=FieldFilter("status", "in", states))
        return self._page(query, None, limit).records

    def steps(self, run_id: str, *, limit: int = 200, after: str | None = None, status: str | None = None) -> Page:
        """The steps and items of a run by document id: `step`, or `step:` and the hash of the item's name."""
        steps = self.client.collection(f"{run_path(self._pipeline, run_id)}/{self._pipeline}_steps")
        query = steps.order_by("__name__")
        if status:
            query = query.where(filter=FieldFilter("status", "==", status))
        return self._page(query, steps.document(after) if after else None, limit)

    def _page(self, query: Any, after: firestore.DocumentReference | None, limit: int) -> Page:
        try:
            if after is not None:
                query = query.start_after(after.get(retry=None, timeout=SECONDS))
            found = list(query.limit(limit + 1).stream(retry=None, timeout=SECONDS))
        except api.GoogleAPIError as error:
            raise unreachable(error) from error
        records = dict(_records(found[:limit]))
        return Page(records, found[limit - 1].id if len(found) > limit else None)

    def _record(self, path: str) -> Record | None:
        try:
            return Record.of(snapshot_of(self.client.document(path).get(retry=None, timeout=SECONDS)))
        except api.GoogleAPIError as error:
            raise unreachable(error) from error


def _records(found: Iterable[firestore.DocumentSnapshot[Any]]) -> Iterable[tuple[str, Record]]:
    for snapshot in found:
        record = Record.of(snapshot_of(snapshot))
        assert record is not None, "a query finds what exists"
        yield snapshot.id, record
