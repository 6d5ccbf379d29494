"""What a month costs, from the schedule, the steps and the items. An estimate: list prices, no discounts.

Prices change; this is the one place where they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim

from tools.check.calls import RUN_STEP, step_calls
from tools.check.findings import Project
from tools.check.sources import holds_a_lease

AS_OF = "2025-06"
PRICES = {  # US dollars; the dearer region where they differ
    "Scheduler job, a month": 0.10,
    "Workflows steps, 1000 (calls of run.app are internal)": 0.01,
    "Firestore writes, 100000": 0.18,
    "Firestore reads, 100000": 0.06,
    "Firestore TTL deletes, 100000": 0.02,
    "Cloud Run requests, million": 0.40,
    "Cloud Run vCPU-second": 0.000024,
    "Cloud Run GiB-second": 0.0000025,
}
"""Free quotas are left out: named databases and TTL deletes have none, the others are one billing account's."""

SECONDS_A_CALL = 1.0


@dataclass(frozen=True)
class Cost:
    """A month of 30 days. `lines` are (what, how many, dollars)."""

    runs: int
    items: int
    lines: list[tuple[str, float, float]]

    @property
    def total(self) -> float:
        return sum(dollars for _, _, dollars in self.lines)


def cost(project: Project, items: int) -> Cost:
    """`items` is the length that every fan-out is taken to have."""
    settings = project.settings
    runs = _runs(settings.schedule)
    calls = list(step_calls(project.workflow)) if project.workflow else []
    inside = _billed(project, RUN_STEP)
    steps, writes, reads, deletes, requests = _billed(project, "main"), 2.0, 0.0, 1.0, 1.0
    cpu, memory = 1.0, 0.5
    for call in calls:
        times = items if call.looped else 1
        step = settings.steps.get(call.step or "")
        external = step is None or holds_a_lease(step)
        steps += times * (1 + inside)
        writes += times * (2 if external else 1)
        reads += times * (0 if external else 1)
        deletes += times
        requests += times
        cpu += times * SECONDS_A_CALL * float(step.cpu if step else 1)
        memory += times * SECONDS_A_CALL * _gib(step.memory if step else "512Mi")
    amounts = [1.0, *(runs * amount for amount in (steps, writes, reads, deletes, requests, cpu, memory))]
    units = [1, 1000, 100_000, 100_000, 100_000, 1_000_000, 1, 1]
    lines = [
        (what, amount, amount / unit * price)
        for (what, price), amount, unit in zip(PRICES.items(), amounts, units, strict=True)
    ]
    return Cost(runs, items, lines)


def _runs(schedule: str) -> int:
    """Slots of 30 days."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    try:
        slots = CronSim(schedule, start)
        return sum(1 for _ in iter(lambda: next(slots) < start + timedelta(days=30), False))
    except Exception:  # the schedule is told about elsewhere
        return 0


def _billed(project: Project, routine: str) -> int:
    """Billed steps of a routine without its calls of run_step: every step, and every entry of an assign."""
    workflow = project.workflow.workflows.get(routine) if project.workflow else None
    if workflow is None:
        return 0
    count = 0
    for step in (inner for outer in workflow.steps for inner in outer.walk()):
        if step.call is None or step.call.name != RUN_STEP:
            count += len(step.body.entries) if step.kind == "assign" else 1  # type: ignore[union-attr]
    return count


def _gib(memory: str) -> float:
    return int(memory[:-2]) / (1024 if memory.endswith("Mi") else 1)
