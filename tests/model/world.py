"""A world small enough to try every order of events in: one store, a clock, attempts that stop at every call.

The attempts run the real protocol code. It is stopped at each call of the store by feeding it the answers it has
had so far and raising `Pause` at the first call beyond them: an attempt is a function from the answers to its next
call, so a state of the world is plain data, and every order of events can be reached from it without a thread.

What may happen to a call (`Happening`): it is carried out; it is carried out and the answer is lost; it is lost;
it is lost now and lands later; the process dies before or after it. What may happen between calls: the clock passes the
lease, a late write lands. An operator is one more attempt, with other code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from exactly_once.errors import Changed, Exists, Uncertain, Unreachable
from exactly_once.store import SERVER_TIME, Snapshot

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
Items = tuple[tuple[str, Any], ...]


def frozen(value: Any) -> Any:
    """The same value, hashable."""
    if isinstance(value, Mapping):
        return ("map", tuple(sorted((key, frozen(inner)) for key, inner in value.items())))
    if isinstance(value, list):
        return ("list", tuple(frozen(inner) for inner in value))
    return value


def thawed(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "map":
        return {key: thawed(inner) for key, inner in value[1]}
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "list":
        return [thawed(inner) for inner in value[1]]
    return value


@dataclass(frozen=True)
class Doc:
    """A record as it stands; `version` counts its writes."""

    fields: Items
    version: int

    def __getitem__(self, name: str) -> Any:
        return thawed(dict(self.fields).get(name))

    def as_fields(self) -> dict[str, Any]:
        return {name: thawed(value) for name, value in self.fields}


@dataclass(frozen=True)
class Call:
    """One call of an attempt: of the store, or of the world outside."""

    kind: str  # create, read, replace, tx_read, tx_commit; effect, look, start
    path: str = ""
    fields: Items = ()
    version: int | None = None
    effect: str = ""

    @property
    def writes(self) -> bool:
        return self.kind in ("create", "replace", "tx_commit")

    @property
    def outside(self) -> bool:
        return self.kind in ("effect", "look", "start")


@dataclass(frozen=True)
class Answer:
    """What a call came to: a value, or the name of an exception."""

    value: Any = None
    error: str = ""


@dataclass(frozen=True)
class State:
    """Everything there is. `docs` maps paths to records; `late` are writes under way; `outside` is what was seen."""

    docs: tuple[tuple[str, Doc], ...] = ()
    clock: int = 0  # seconds, the server's
    histories: tuple[tuple[Answer, ...], ...] = ()  # what each attempt has been answered so far
    over: frozenset[int] = frozenset()  # attempts that have answered or died
    late: tuple[tuple[int, Call], ...] = ()
    outside: tuple[Any, ...] = ()
    faults: int = 0  # faults that may still happen
    ticks: int = 0  # leases that may still run out

    def doc(self, path: str) -> Doc | None:
        return dict(self.docs).get(path)

    def put(self, path: str, doc: Doc) -> State:
        docs = dict(self.docs)
        docs[path] = doc
        return replace(self, docs=tuple(sorted(docs.items())))

    def answered(self, attempt: int, answer: Answer) -> State:
        histories = list(self.histories)
        histories[attempt] = (*histories[attempt], answer)
        return replace(self, histories=tuple(histories))

    def ended(self, attempt: int) -> State:
        """Without the attempt's history: what it has seen matters no more."""
        histories = list(self.histories)
        histories[attempt] = ()
        return replace(self, histories=tuple(histories), over=self.over | {attempt})

    def seen_outside(self, *what: Any) -> State:
        return replace(self, outside=(*self.outside, what))


def stamp(clock: int) -> datetime:
    return EPOCH + timedelta(seconds=clock)


def carried_out(state: State, call: Call) -> tuple[State, Answer]:
    """The store's own behaviour: one atomic call."""
    doc = state.doc(call.path)
    if call.kind in ("read", "tx_read"):
        return state, Answer((doc, state.clock))
    if call.kind == "create":
        if doc is not None:
            return state, Answer(error="Exists")
        return written(state, call, {})
    if call.kind == "replace":
        if doc is None or doc.version != call.version:
            return state, Answer(error="Changed")
        return written(state, call, doc.as_fields())
    if call.kind == "tx_commit":
        if (doc.version if doc else None) != call.version:
            return state, Answer(error="Uncertain")  # contention: ABORTED
        state, answer = written(state, call, doc.as_fields() if doc else {})
        if call.effect:
            state = state.seen_outside("committed", call.effect)
        return state, answer
    raise AssertionError(call.kind)


def written(state: State, call: Call, before: dict[str, Any]) -> tuple[State, Answer]:
    doc = state.doc(call.path)
    version = doc.version + 1 if doc else 1
    fields = {name: stamp(state.clock) if value is SERVER_TIME else thawed(value) for name, value in call.fields}
    merged = {**before, **fields}
    return state.put(call.path, Doc(items(merged), version)), Answer(version)


class Pause(BaseException):
    """The attempt has no answer for this call yet. Not an Exception: no code under test may catch it."""

    def __init__(self, call: Call) -> None:
        self.call = call


class Lost(Exception):  # noqa: N818 - what it is
    """The answer of an outside call was lost: a time-out, as a body sees it."""


ERRORS: dict[str, Callable[[], Exception]] = {
    "Exists": lambda: Exists("exists"),
    "Changed": lambda: Changed("changed"),
    "Uncertain": lambda: Uncertain("lost"),
    "Unreachable": lambda: Unreachable("lost"),
    "Lost": lambda: Lost("lost"),
}


class Replay:
    """Gives an attempt the answers it has had, then pauses it. It is the attempt's store, too."""

    def __init__(self, history: tuple[Answer, ...]) -> None:
        self._answers = iter(history)
        self.calls: list[Call] = []
        self._paused: Pause | None = None

    def do(self, call: Call) -> Any:
        answer = None if self._paused else next(self._answers, None)
        if answer is None:  # also when the code under test tries to clean up while it is being paused
            self._paused = self._paused or Pause(call)
            raise self._paused
        self.calls.append(call)
        if answer.error:
            raise ERRORS[answer.error]()
        return answer.value

    # -- the four primitives
    def create(self, path: str, fields: Mapping[str, Any], timeout: float) -> int:
        return int(self.do(Call("create", path, items(fields))))

    def read(self, path: str, timeout: float) -> Snapshot:
        return self._snapshot(self.do(Call("read", path)))

    def replace(self, path: str, fields: Mapping[str, Any], version: int, timeout: float) -> int:
        return int(self.do(Call("replace", path, items(fields), version)))

    def transaction(self, path: str, work: Any, retry_of: Any, timeout: float) -> None:
        seen = self._snapshot(self.do(Call("tx_read", path)))
        handle: list[str] = []
        fields = work(handle, seen)
        if fields is not None:
            self.do(Call("tx_commit", path, items(fields), seen.version, "+".join(handle)))

    @staticmethod
    def _snapshot(value: tuple[Doc | None, int]) -> Snapshot:
        doc, clock = value
        if doc is None:
            return Snapshot(None, None, stamp(clock))
        return Snapshot(doc.as_fields(), doc.version, stamp(clock))


def items(fields: Mapping[str, Any]) -> Items:
    return tuple(sorted((name, frozen(value)) for name, value in fields.items()))
