"""Who a run, a step and an item are. Two deliveries with one run id are the same run, whatever else they say.

The recipes below are versioned. A change of `RECIPE`, of the pipeline's name, of the scope or of a step's name makes
new identities, under which everything is done again: make it only when no retry is under way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from .encoding import digest
from .errors import Refusal

RECIPE = 1

Kind = Literal["schedule", "forced", "manual"]

KINDS: tuple[Kind, ...] = ("schedule", "forced", "manual")

ITEM_LIMIT = 1500
"""Bytes of an item's name as UTF-8: what Firestore indexes of a string without cutting it."""

_HEX64 = re.compile(r"[0-9a-f]{64}")
_JOB = re.compile(r"[A-Za-z0-9_-]{1,500}")  # Cloud Scheduler, REST reference, Job.name: JOB_ID
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")  # RFC 3339


@dataclass(frozen=True)
class RunContext:
    """What the workflow gets as its argument and hands to every step."""

    run_id: str
    """64 hex digits."""
    pipeline: str
    slot: datetime | None
    """The scheduled instant, UTC. None for a manual run without one."""
    local: datetime | None
    """The same instant in the schedule's time zone."""
    kind: Kind
    """A `forced` run carries a slot that is still to come: no step may take it for the business date unasked."""
    job: str
    """Cloud Scheduler's short job id; for a manual run whatever its caller says."""
    key: str

    def to_json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "slot": self.slot and instant_text(self.slot),
            "local": self.local and self.local.isoformat(),
            "kind": self.kind,
            "job": self.job,
            "key": self.key,
        }

    @classmethod
    def from_json(cls, value: Any) -> RunContext:
        """Raises Refusal (malformed) that names the field."""
        if not isinstance(value, Mapping):
            raise Refusal(
                "malformed",
                "'run' has to be the run's context, a map: pass on what main of the workflow got",
                "step.refused",
            )
        texts = {name: value.get(name) for name in ("run_id", "pipeline", "kind", "job", "key")}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise Refusal("malformed", f"run.{name} has to be a string", "step.refused")
        if not _HEX64.fullmatch(value["run_id"]):
            raise Refusal("malformed", "run.run_id has to be 64 hex digits", "step.refused")
        if value["kind"] not in KINDS:
            raise Refusal("malformed", f"run.kind has to be one of {', '.join(KINDS)}", "step.refused")
        slot, local = _optional_time(value, "slot"), _optional_time(value, "local")
        return cls(slot=slot and slot.astimezone(UTC), local=local, **texts)  # type: ignore[arg-type]


def run_id(pipeline: str, scope: str, kind: Kind, key: str) -> str:
    """sha256 of the canonical JSON of [recipe, pipeline, scope, kind, key], in hex."""
    return digest([RECIPE, pipeline, scope, kind, key])


def slot_run(pipeline: str, scope: str, job: str, slot: datetime, zone: str, *, forced: bool = False) -> RunContext:
    """The run of one slot of one job. `zone` is the schedule's IANA time zone; it is not part of the identity."""
    slot = slot.astimezone(UTC)
    kind: Kind = "forced" if forced else "schedule"
    key = f"{job}@{instant_text(slot)}"  # a job id holds no "@": no two pairs give one key
    identity = run_id(pipeline, scope, kind, key)
    return RunContext(identity, pipeline, slot, slot.astimezone(ZoneInfo(zone)), kind, job, key)


def manual_run(
    pipeline: str, scope: str, key: str, *, job: str = "", slot: datetime | None = None, zone: str = "UTC"
) -> RunContext:
    """The run of a caller's own key. `slot` is passed on to the steps, and is not part of the identity."""
    slot = slot and slot.astimezone(UTC)
    local = slot and slot.astimezone(ZoneInfo(zone))
    return RunContext(run_id(pipeline, scope, "manual", key), pipeline, slot, local, "manual", job, key)


def idempotency_key(run_id: str, step: str, item: str | None = None) -> str:
    """What a receiver gets with the effect of this step and item of this run: 64 hex digits, equal in every attempt."""
    return digest([RECIPE, "idempotency key", run_id, step, item])


def run_path(pipeline: str, run_id: str) -> str:
    """Where the run's record lies in the database."""
    return f"{pipeline}_runs/{run_id}"


def step_path(pipeline: str, run_id: str, step: str, item: str | None = None) -> str:
    """Where the record of a step, or of one item of it, lies. The item's name is hashed: it may hold any character."""
    name = step if item is None else f"{step}:{hashlib.sha256(item.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return f"{run_path(pipeline, run_id)}/{pipeline}_steps/{name}"


def parse_instant(text: str) -> datetime:
    """An RFC 3339 time as an aware datetime, finer than a microsecond cut off. Raises ValueError."""
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no RFC 3339 time such as 2026-01-15T02:00:00Z")
    instant = datetime.fromisoformat(text.upper())
    if not 1 < instant.year < 9999:  # in another time zone it may lie in a year that there is not
        raise ValueError(f"{text!r} is too far away")
    return instant


def instant_text(instant: datetime) -> str:
    """RFC 3339 in UTC with `Z`; a fraction only if there is one."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def is_run_id(text: object) -> bool:
    return isinstance(text, str) and bool(_HEX64.fullmatch(text))


def is_job(text: str) -> bool:
    return bool(_JOB.fullmatch(text))


def _optional_time(value: Mapping[str, Any], name: str) -> datetime | None:
    text = value.get(name)
    if text is None:
        return None
    try:
        return parse_instant(text)
    except (TypeError, ValueError) as error:
        raise Refusal("malformed", f"run.{name} has to be an RFC 3339 time or null", "step.refused") from error
