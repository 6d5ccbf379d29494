"""Which slots a schedule demanded: the cron that was in force, by the history of its deployments.

In the cloud the Scheduler's audit log has every change of the job, pauses too (Admin Activity: always on, kept for 400
days). Each deployment that somebody notes is a document of `<pipeline>_deploys`, named by its time: `./pipeline local`
and `./pipeline deployed` write one when cron, time zone, job or pause differ. Without either the settings' cron counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim
from google.api_core import exceptions as api
from google.cloud import firestore

from tools.emulators.scheduler import slots
from tools.settings import Settings

SECONDS = 10.0


@dataclass(frozen=True)
class Deploy:
    """A schedule that was in force from `at` on."""

    at: datetime
    schedule: str
    time_zone: str
    job: str
    paused: bool
    who: str = ""

    def same(self, other: Deploy) -> bool:
        mine, others = asdict(self), asdict(other)
        return all(mine[name] == others[name] for name in ("schedule", "time_zone", "job", "paused"))


@dataclass(frozen=True)
class Demand:
    """A slot that was due. `uncertain`: the clocks changed, and Scheduler may have left it out or moved it."""

    slot: datetime
    deploy: Deploy
    uncertain: bool = False


def history(client: firestore.Client, pipeline: str) -> list[Deploy]:
    """Oldest first. Raises GoogleAPIError."""
    found = client.collection(f"{pipeline}_deploys").order_by("__name__").stream(retry=None, timeout=SECONDS)
    return [Deploy(**{name: each.get(name) for name in Deploy.__dataclass_fields__}) for each in found]


def record(client: firestore.Client, settings: Settings, at: datetime, paused: bool, who: str) -> bool:
    """Note that the settings' schedule is in force from `at` on; False if it was already. Raises GoogleAPIError."""
    deploy = Deploy(at, settings.schedule, settings.time_zone, settings.job, paused, who)
    known = history(client, settings.pipeline)
    if known and known[-1].same(deploy):
        return False
    name = at.astimezone(UTC).isoformat(timespec="microseconds")
    try:
        client.document(f"{settings.pipeline}_deploys/{name}").create(asdict(deploy), retry=None, timeout=SECONDS)
    except api.AlreadyExists:
        return False
    return True


def in_force(settings: Settings, known: Sequence[Deploy], since: datetime) -> list[Deploy]:
    """The deployments, or where none is known the settings as if they had always been so."""
    if known:
        return list(known)
    return [Deploy(since, settings.schedule, settings.time_zone, settings.job, paused=False)]


@dataclass(frozen=True)
class Change:
    """What the audit log says of a job; None is what the change left as it was. `first`: there was no job before."""

    at: datetime
    schedule: str | None = None
    time_zone: str | None = None
    paused: bool | None = None
    first: bool = False


METHODS = {"CreateJob": False, "UpdateJob": None, "PauseJob": True, "ResumeJob": False, "DeleteJob": True}
"""Method of the Scheduler's API -> whether the job is paused after it; None as before."""


def changes(entries: Iterable[Mapping[str, Any]]) -> Iterator[Change]:
    """The changes of one job by its entries in the audit log. What was refused has a status with a code."""
    for entry in entries:
        said = entry.get("protoPayload") or {}
        method = str(said.get("methodName", "")).rpartition(".")[2]
        if method in METHODS and not (said.get("status") or {}).get("code"):
            job = (said.get("request") or {}).get("job") or {}
            at = datetime.fromisoformat(str(entry["timestamp"]).replace("Z", "+00:00"))
            yield Change(at, job.get("schedule"), job.get("timeZone"), METHODS[method], method == "CreateJob")


def merged(settings: Settings, known: Sequence[Deploy], found: Sequence[Change], since: datetime) -> list[Deploy]:
    """The notes and the changes of the audit log as one history; before the first of them, the settings."""
    if not found:
        return in_force(settings, known, since)
    events: list[Deploy | Change] = sorted([*known, *found], key=lambda event: event.at)
    began = isinstance(events[0], Deploy) or events[0].first
    now = Deploy(min(since, events[0].at), settings.schedule, settings.time_zone, settings.job, paused=began)
    history = [now]
    for event in events:
        if isinstance(event, Change):
            cron, zone = event.schedule or now.schedule, event.time_zone or now.time_zone
            paused = now.paused if event.paused is None else event.paused
            event = Deploy(event.at, cron, zone, settings.job, paused, "audit log")
        now = event
        history.append(now)
    return history


def always(deploys: Sequence[Deploy], since: datetime) -> list[Deploy]:
    """As if the job had never been paused, and its first cron had been there before."""
    going = [replace(deploy, paused=False) for deploy in deploys]
    return [replace(going[0], at=min(since, going[0].at)), *going[1:]]


def demanded(deploys: Sequence[Deploy], since: datetime, until: datetime) -> Iterator[Demand]:
    """The slots in [since, until), in order. Raises ScheduleError."""
    far = datetime.max.replace(tzinfo=UTC)
    for deploy, following in pairwise([*deploys, Deploy(far, "", "", "", paused=True)]):
        start, end = max(since, deploy.at), min(until, following.at)
        if not deploy.paused and start < end:
            for slot in slots(deploy.schedule, deploy.time_zone, start.timestamp() - 1e-3):
                if slot >= end:
                    break
                if slot >= start:
                    yield Demand(slot, deploy, _uncertain(deploy, slot))


def _uncertain(deploy: Deploy, slot: datetime) -> bool:
    """Whether the clocks changed around the slot: its wall time comes twice, or its own was left out."""
    local = slot.astimezone(ZoneInfo(deploy.time_zone))
    wall = local.replace(tzinfo=None)
    hourly = deploy.schedule.split()[1].startswith("*")
    moved = next(CronSim(deploy.schedule, wall - timedelta(minutes=1))) != wall
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    return moved or (twice and not hourly)


def as_json(demand: Demand) -> dict[str, Any]:
    return {"slot": demand.slot.isoformat().replace("+00:00", "Z"), "cron": demand.deploy.schedule}
