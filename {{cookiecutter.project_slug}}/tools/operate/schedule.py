"""Which slots a schedule demanded: the cron that was in force, by the history of its deployments.

Each deployment that changes cron, time zone, job or pause is a document of `<pipeline>_deploys`, named by its time. It
is written by `./pipeline deployed --cloud`, after a deploy. Without any, the settings' cron counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
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
