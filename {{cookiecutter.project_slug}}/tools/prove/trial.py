"""One run of the pipeline on a chain of its own, disturbed or not, and everything that it left behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tools.emulators.chain import Chain
from tools.emulators.clock import JumpClock, OffsetFile
from tools.emulators.faults import Call, Fault, Plan
from tools.emulators.storage import OFFSET_FILE
from tools.reach import Addresses, events_to, reach
from tools.settings import load as load_settings

AFTERMATH = 3600.0
"""Seconds on the emulators' clock after a run in which late requests land and zombies wake."""

PATIENCE = 60.0
"""Real seconds after which a run is given up."""

Fields = dict[str, Any]


@dataclass
class Observation:
    """What one run left: documents and ledger as the world sees them, and the story to explain them.

    Values are plain (see `plain`). documents: path -> fields, the protocol's own left out. records: step and item
    ("" without) -> the record's fields, with `run_id` and the idempotency `key`. ledger: the receivers' rows.
    executions: as Workflows lists them, oldest first. events: everybody's lines. calls: what the wires saw, in order.
    pending: faults that did not happen. resolved: steps that were held and then resolved.
    """

    documents: dict[str, Fields]
    records: dict[tuple[str, str], Fields]
    ledger: list[dict[str, Any]]
    executions: list[dict[str, Any]]
    events: list[dict[str, Any]]
    calls: list[Call]
    pending: list[Fault] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    settled: bool = True

    @property
    def completed(self) -> bool:
        return any(execution["state"] == "SUCCEEDED" for execution in self.executions)


@dataclass(frozen=True)
class Subject:
    """What is tried: the project, what is loaded before each run, and the slot that is delivered."""

    project: Path
    documents: Mapping[str, Fields]
    slot: datetime


class Stage:
    """A chain that runs the subject again and again, from the same beginning each time.

    `ahead`: seconds by which the clocks of the functions' processes are ahead.
    """

    def __init__(self, subject: Subject, chain: Chain, clock: JumpClock) -> None:
        self.subject = subject
        self.chain = chain
        self._clock = clock
        self._slot_ahead = 0.0

    def clean(self) -> Observation:
        """A run that nothing disturbs."""
        return self.disturbed((), {})

    def disturbed(self, faults: Sequence[Fault], results: Mapping[tuple[str, str], Any]) -> Observation:
        """A run under `faults`. What ends held is resolved as an operator would, who looks at the receivers.

        `results` are the clean run's, by step and item: what an operator enters for an effect that is there.
        """
        self._reset()
        chain = self.chain
        before = len(chain.log.all())
        chain.plan.add(*faults)
        with ThreadPoolExecutor(1) as pool:
            delivery = pool.submit(chain.deliver, self.subject.slot)
            settled = bool(wait([delivery], PATIENCE).done)
            with suppress(TimeoutError):
                delivery.result(PATIENCE if settled else 0.1)
        settled = settled and chain.settle(PATIENCE)
        resolved = self._resolve(results) if settled else []
        self._calm()
        return Observation(
            {path: plain(fields) for path, fields in chain.documents().items()},
            self._records(),
            chain.receivers.ledger(),
            chain.executions(),
            chain.events[before:],
            list(chain.plan.calls),
            chain.plan.pending(),
            resolved,
            settled and chain.settle(PATIENCE),
        )

    def _reset(self) -> None:
        """Nothing is left of the run before: no fault, no frozen process, no document, no execution."""
        chain = self.chain
        chain.plan.clear()
        for service in chain.services.values():
            service.resume()
        with ThreadPoolExecutor(len(chain.services)) as pool:
            list(pool.map(lambda service: service.ensure(), chain.services.values()))
        chain.workflows.workflows.delete_workflow({"name": chain.settings.workflow_name})
        chain.deploy()
        with chain.database() as client:
            for collection in list(client.collections()):
                client.recursive_delete(collection)
            batch = client.batch()
            for path, fields in self.subject.documents.items():
                batch.set(client.document(path), fields)
            batch.commit()
        chain.receivers.clear()

    def _calm(self) -> None:
        """Let everything happen that is still to happen: late requests, zombies, retries of what nobody waits for."""
        self._clock.sleep(AFTERMATH)
        for service in self.chain.services.values():
            service.resume()

    def _resolve(self, results: Mapping[tuple[str, str], Any]) -> list[str]:
        """Resolve what is held: done if its receiver has the key, to be done again if not; then resume the run."""
        found: list[str] = []
        for _ in range(3):
            held = {place: record for place, record in self._records().items() if record["status"] == "unknown"}
            if not held:
                break
            addresses = Addresses(self.chain.firestore_address, self.chain.workflows.grpc_address)
            with reach(self.chain.settings, addresses, events_to(self.chain.log.record), "prove") as operator:
                run_id = next(iter(held.values()))["run_id"]
                for (step, item), record in held.items():
                    there = any(row["step"] == step and row["key"] == record["key"] for row in self._effects())
                    operator.operator.resolve(
                        run_id,
                        step,
                        item or None,
                        attempt_id=record["attempt_id"],
                        outcome="done" if there else "redo",
                        result=results.get((step, item)) if there else None,
                        note="the receiver has it" if there else "the receiver has not got it",
                    )
                    found.append(f"{step} {item}".strip())
                operator.operator.resume(run_id, operator.starter, note="resolved what was held")
            self.chain.settle(PATIENCE)
        return found

    def _effects(self) -> list[dict[str, Any]]:
        return [row for row in self.chain.receivers.ledger() if row["outcome"] == "first"]

    def _records(self) -> dict[tuple[str, str], Fields]:
        from exactly_once.identity import idempotency_key

        found = {}
        with self.chain.database() as client:
            for snapshot in client.collection_group(f"{self.chain.settings.pipeline}_steps").stream():
                record = snapshot.to_dict()
                run_id = snapshot.reference.parent.parent.id
                key = idempotency_key(run_id, record["step"], record.get("item"))
                found[record["step"], record.get("item") or ""] = {**plain(record), "run_id": run_id, "key": key}
        return found


def plain(value: Any) -> Any:
    """A value of Firestore as what can be compared, shown and sent to another process; a time becomes a `Time`."""
    if isinstance(value, datetime):
        return Time(value.isoformat())
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    return f"{type(value).__name__} {getattr(value, 'path', None) or getattr(value, 'to_protobuf', lambda: value)()}"


class Time(str):
    """A timestamp, as text."""


@contextmanager
def stage(subject: Subject, state: Path, ahead: float = 0.0) -> Iterator[Stage]:
    """A chain of its own for one stage. Raises UserError."""
    state.mkdir(parents=True, exist_ok=True)
    clock = JumpClock(OffsetFile(state / OFFSET_FILE))
    clock.set(subject.slot.timestamp())
    try:
        with Chain(subject.project, state, clock=clock, plan=Plan(), settings=load_settings(subject.project)) as chain:
            if ahead:
                _set_ahead(chain, ahead)
            yield Stage(subject, chain, clock)
    finally:
        clock.stop()


def _set_ahead(chain: Chain, seconds: float) -> None:
    """Start the functions' processes anew, with clocks that are ahead."""
    shifted = str(Path(__file__).with_name("shifted"))
    for service in chain.services.values():
        path = f"{shifted}:{service.spec.env['PYTHONPATH']}"
        env = {**service.spec.env, "PYTHONPATH": path, "PROCESS_CLOCK_AHEAD": str(seconds)}
        service.spec = dataclasses.replace(service.spec, env=env)
    with ThreadPoolExecutor(len(chain.services)) as pool:
        list(pool.map(lambda service: service.restart(), chain.services.values()))
