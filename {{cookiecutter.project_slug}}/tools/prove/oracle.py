"""What every run has to agree in with a clean one, and the words for where it does not.

Two clean runs, the second with the clocks of the functions' processes a day ahead, show what differs by itself:
times and generated ids are left out of the comparison from then on, anything else is a mistake of the pipeline, which
would do something else when it is called again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from .trial import Fields, Observation, Time

_ID = re.compile(r"[A-Za-z0-9]{20}|[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
"""What Firestore and uuid make up for a document's id."""

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)?")

UNDISTURBED = ("step.released", "step.failed", "step.held", "step.fenced", "step.taken_over", "step.refused")
"""What no step says in a run that nothing disturbs."""

Leaves = dict[tuple[str, str], Any]
"""(document, field path) -> value."""


class Oracle:
    """Knows the clean run. `ignore` are shell patterns of "document:field" that the user knows to differ."""

    def __init__(self, clean: Observation, again: Observation, ignore: Sequence[str] = ()) -> None:
        self.clean = clean
        self._ignore = tuple(ignore)
        self._fixed = set(clean.documents) & set(again.documents)
        self._volatile: set[tuple[str, str]] = set()
        self._items = {record["key"]: _place(*where) for where, record in clean.records.items()}
        self._leaves = self._of(clean)
        self.problems = [
            *self._disturbed(clean),
            *self._differing(again),
            *self._other_input(again),
            *self._calls(again),
        ]
        """What is wrong without any fault."""

    # ---------------------------------------------------------------- clean runs
    def _disturbed(self, clean: Observation) -> Iterator[str]:
        if not clean.completed:
            yield f"a run that nothing disturbs does not complete: {_end(clean)}"
        for event, count in Counter(
            (e["event"], e["service"], e.get("reason", "")) for e in clean.events if e["event"] in UNDISTURBED
        ).items():
            name, service, reason = event
            yield f"in a run that nothing disturbs, {service} says {name} {count} times: {reason}"

    def _differing(self, again: Observation) -> Iterator[str]:
        writers = _writers([*self.clean.calls, *again.calls])
        other = self._of(again)
        for place in sorted(self._leaves.keys() | other.keys()):
            ours, theirs = self._leaves.get(place, _ABSENT), other.get(place, _ABSENT)
            if ours == theirs:
                continue
            if (_is_time(ours) and _is_time(theirs)) or (_is_id(ours) and _is_id(theirs)):
                self._volatile.add(place)
                continue
            document, path = place
            by = " and ".join(sorted(writers.get(document.split("#")[0], ()))) or "a step"
            yield (
                f"{by} is not deterministic: {document} {path} is {_shown(ours)} in one clean run and {_shown(theirs)} "
                "in another, a day later by the clocks of the processes; take the day from run.slot"
            )
        self._leaves = {place: value for place, value in self._leaves.items() if place not in self._volatile}

    def _other_input(self, again: Observation) -> Iterator[str]:
        for place in sorted(self.clean.records.keys() ^ again.records.keys()):
            yield f"{_place(*place)} is called in one clean run and not in another"
        for place in sorted(self.clean.records.keys() & again.records.keys()):
            if self.clean.records[place]["input_digest"] != again.records[place]["input_digest"]:
                yield (
                    f"the workflow is not deterministic: {_place(*place)} gets another input in another clean run; "
                    "a second execution of the run would be refused (422, other_input)"
                )

    def _calls(self, again: Observation) -> Iterator[str]:
        ours, theirs = _keys(self.clean), _keys(again)
        for step, receiver in sorted({place for place, _ in ours.keys() ^ theirs.keys()}):
            yield (
                f"{step} calls {receiver} with an Idempotency-Key of its own making: it differs from one clean run to "
                "another, so no receiver knows a repeat; send run.idempotency_key"
            )
        for place, key in sorted(ours.keys() & theirs.keys()):
            if ours[place, key] != theirs[place, key]:
                yield (
                    f"{place[0]} is not deterministic: what it sends to {place[1]} for {self._items.get(key, key)} "
                    "differs from one clean run to another; a repeat under the same key would be refused"
                )

    # ---------------------------------------------------------------- disturbed runs
    def compare(self, seen: Observation, *, zombies: bool) -> list[str]:
        """What is wrong with a disturbed run, in words. `zombies`: a process was frozen beyond its lease on purpose."""
        found = [*self._completion(seen), *self._documents(seen), *self._effects(seen)]
        if not zombies:
            found += _outlasted(seen)
        return found + [f"the fault did not happen, so nothing is shown: {fault}" for fault in seen.pending]

    def _completion(self, seen: Observation) -> Iterator[str]:
        if not seen.executions:
            yield "the slot is lost: no execution was started for it"
        elif not seen.completed:
            yield f"the run did not complete: {_end(seen)}"
        elif not seen.settled:
            yield "the run did not come to rest"

    def _documents(self, seen: Observation) -> Iterator[str]:
        writers = _writers(seen.calls)
        leaves = {place: value for place, value in self._of(seen).items() if place not in self._volatile}
        whole = {document for document, _ in self._leaves}, {document for document, _ in leaves}
        for document in sorted(whole[0] - whole[1]):
            yield f"document {document} is missing"
        for document in sorted(whole[1] - whole[0]):
            yield f"document {document} is there, and a clean run has none such{_by(writers, document)}"
        for place in sorted(self._leaves.keys() | leaves.keys()):
            ours, theirs = self._leaves.get(place, _ABSENT), leaves.get(place, _ABSENT)
            if ours != theirs and place[0] in whole[0] & whole[1]:
                yield (
                    f"document {place[0]}: {place[1]} is {_shown(theirs)}, in a clean run {_shown(ours)}"
                    f"{_by(writers, place[0])}"
                )

    def _effects(self, seen: Observation) -> Iterator[str]:
        ours, theirs = _keys(self.clean), _keys(seen)
        for (step, receiver), key in sorted(ours.keys() - theirs.keys()):
            yield f"{receiver} never got the effect of {self._items.get(key, step)}: key {key[:12]}"
        for (step, receiver), key in sorted(theirs.keys() - ours.keys()):
            yield f"{receiver} got an effect of {step} that a clean run has not: key {key[:12]}"
        bare, bare_now = _without_key(self.clean), _without_key(seen)
        for place in sorted(bare.keys() | bare_now.keys()):
            if bare[place] != bare_now[place]:
                yield (
                    f"{place[0]} took effect at {place[1]} {bare_now[place]} times instead of {bare[place]}: it sends "
                    "no Idempotency-Key, so a repeat is a second effect"
                )
        for row in seen.ledger:
            if row["outcome"] == "other_body":
                place = self._items.get(row["key"], row["key"])
                yield f"{row['step']} repeated its call of {row['receiver']} for {place} with another body, same key"

    def _of(self, observation: Observation) -> Leaves:
        """The leaves of every document; made-up ids in paths are left out, and their documents numbered by content."""
        groups: dict[str, list[Fields]] = defaultdict(list)
        for path, fields in observation.documents.items():
            groups[path if path in self._fixed else _without_ids(path)].append(fields)
        found: Leaves = {}
        for name, group in groups.items():
            for number, fields in enumerate(sorted(group, key=_stable)):
                document = name if len(group) == 1 and name in self._fixed else f"{name}#{number + 1}"
                found[document, ""] = "there"
                found.update({(document, path): value for path, value in _flat(fields)})
        return {place: value for place, value in found.items() if not self._ignored(place)}

    def _ignored(self, place: tuple[str, str]) -> bool:
        text = f"{place[0].split('#')[0]}:{place[1]}"
        return any(fnmatchcase(text, pattern) for pattern in self._ignore)


_ABSENT = object()


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else repr(str(value) if isinstance(value, Time) else value)


def _place(step: str, item: str) -> str:
    return f"{step} {item}".strip()


def _by(writers: dict[str, set[str]], document: str) -> str:
    names = sorted(writers.get(document.split("#")[0], ()))
    return f" (written by {', '.join(names)})" if names else ""


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{index}]")
    else:
        yield path, value


def _stable(fields: Fields) -> str:
    return repr([(path, value) for path, value in sorted(_flat(fields)) if not _is_time(value) and not _is_id(value)])


def _without_ids(path: str) -> str:
    return "/".join("<id>" if _ID.fullmatch(part) else part for part in path.split("/"))


def _is_time(value: Any) -> bool:
    return isinstance(value, Time) or (isinstance(value, str) and bool(_INSTANT.fullmatch(value)))


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and bool(_ID.fullmatch(value))


def _keys(observation: Observation) -> dict[tuple[tuple[str, str], str], str]:
    """((step, receiver), key) -> digest of the body, for every keyed effect."""
    return {
        ((row["step"], row["receiver"]), row["key"]): row["sha256"]
        for row in observation.ledger
        if row["outcome"] == "first" and row["key"] is not None
    }


def _without_key(observation: Observation) -> Counter[tuple[str, str]]:
    return Counter(
        (row["step"], row["receiver"]) for row in observation.ledger if row["outcome"] == "first" and row["key"] is None
    )


def _end(observation: Observation) -> str:
    if not observation.executions:
        return "no execution"
    last = observation.executions[-1]
    error = (last.get("error") or {}).get("payload") or (last.get("error") or {}).get("context") or ""
    return f"its last execution is {last['state']} {str(error)[:300]}".strip()


def _outlasted(seen: Observation) -> Iterator[str]:
    """Attempts whose body was at work for longer than their lease: another one may run, or has run, beside it."""
    began: dict[str, float] = {}
    overtaken: set[str] = set()
    extended: set[str] = set()
    for event in seen.events:
        attempt, name = str(event.get("attempt_id")), event["event"]
        if name in ("step.claimed", "step.taken_over"):
            began[attempt] = event["time"]
            overtaken.add(str(event.get("previous")))
        elif name == "step.extended":
            extended.add(attempt)
        elif attempt in began and name in ("step.completed", "step.fenced", "step.released", "step.held"):
            place = (event.get("step", ""), event.get("item") or "")
            lease = seen.records.get(place, {}).get("lease_seconds", 0.0)
            worked = event["time"] - began.pop(attempt)
            if attempt in overtaken or (worked > lease > 0 and attempt not in extended):
                yield (
                    f"{_place(*place)} was at work for {worked:.0f} s under a lease of {lease:.0f} s: another attempt "
                    "may run beside it; LEASE is shorter than the work"
                )


def _writers(calls: Iterable[Any]) -> dict[str, set[str]]:
    """Document path (made-up ids left out, too) -> the parts that committed a write of it."""
    from google.cloud.firestore_v1.types import firestore

    found: dict[str, set[str]] = defaultdict(set)
    for call in calls:
        if call.method != "Commit" or not call.body:
            continue
        for write in firestore.CommitRequest.pb().FromString(call.body).writes:
            path = (write.update.name or write.delete).partition("/documents/")[2]
            found[path].add(call.caller)
            found[_without_ids(path)].add(call.caller)
    return found
