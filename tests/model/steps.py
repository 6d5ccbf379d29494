"""The cases of a step: its attempts run `External.handle` and `Transactional.handle` as they are deployed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from exactly_once.contract import StepRequest
from exactly_once.errors import LeaseLost, NotAccepted, Permanent, Refusal, StoreError
from exactly_once.external import NOT_DONE, Done, External, OnUnknown, Verdict
from exactly_once.identity import manual_run, step_path
from exactly_once.log import Log
from exactly_once.operate import Operator
from exactly_once.operate import Outcome as Decision
from exactly_once.run import Run
from exactly_once.runtime import Runtime
from exactly_once.settings import StepSettings
from exactly_once.store import Host
from exactly_once.transactional import Transactional

from .explorer import LEASE_OVER, Case, Explorer, Outcome
from .world import EPOCH, Answer, Call, Replay, State, stamp

SETTINGS = StepSettings("p", "project", "db", timedelta(days=90), "charge", 300, 330, 10)
CONTEXT = manual_run("p", "scope", "key")
REQUEST = StepRequest(CONTEXT, "charge", None, {"amount": 1}, "digest")
PATH = step_path("p", CONTEXT.run_id, "charge")


def host_of(n: int) -> Host:
    """Attempt n's host. Its clock stands still: no decision may depend on it."""
    ids = iter(range(10))
    return Host(
        monotonic=lambda: 0.0,
        sleep=lambda seconds: None,
        wait=lambda event, seconds: event.is_set(),
        now=lambda: EPOCH,
        new_id=lambda: f"{n}.{next(ids)}",
    )


def author(attempt_id: Any) -> int:
    """Whose attempt id it is."""
    return int(str(attempt_id).split(".")[0])


def answered(go: Callable[[], Outcome]) -> Outcome:
    """What the caller of a step or of the proxy gets."""
    try:
        return go()
    except Refusal as error:
        return Outcome(error.status, error.code)
    except LeaseLost:
        return Outcome(409, "fenced")
    except StoreError:
        return Outcome(500, "unreachable")


class StepCase(Case):
    """What every step promises, whatever its kind."""

    def handler(self, n: int, world: Replay) -> External | Transactional:
        raise NotImplementedError

    def is_operator(self, n: int) -> bool:
        return False

    def runtime(self, n: int, world: Replay) -> Runtime:
        return Runtime(SETTINGS, world, host_of(n), Log(lambda line: None))

    def attempt(self, n: int, world: Replay) -> Outcome:
        def go() -> Outcome:
            success = self.handler(n, world).handle(self.runtime(n, world), REQUEST, Log(lambda line: None))
            return Outcome(200, "replayed" if success.replayed else "", success.text)

        return answered(go)

    def outside(self, state: State, n: int, call: Call, arrives: bool) -> tuple[State, Answer]:
        if call.kind == "look":
            return state, Answer(any(seen[0] == "arrived" for seen in state.outside))
        state = state.seen_outside("begun", n)
        return (state.seen_outside("arrived", n) if arrives else state), Answer(f"of attempt {n}")

    def after_write(self, before: State, after: State, n: int, call: Call) -> str | None:
        old, new = before.doc(call.path), after.doc(call.path)
        assert new is not None
        if old is None:
            return None
        takes_over = new["attempt_id"] != old["attempt_id"]
        if old["status"] == "completed":
            return "a completed record never changes"
        if (
            takes_over
            and old["status"] == "in_progress"
            and stamp(before.clock) < old["claimed_at"] + timedelta(seconds=old["lease_seconds"])
        ):
            return "no take-over while the lease runs by the server's clock"
        if takes_over and old["status"] in ("failed", "unknown") and not self.is_operator(n):
            return "what waits for an operator is not taken over"
        if not takes_over and author(old["attempt_id"]) != n:
            return "a fenced attempt changes nothing"
        return None

    def after_outcome(self, state: State, n: int, outcome: Outcome) -> tuple[State, str | None]:
        doc = state.doc(PATH)
        recorded = doc["result"] if doc and doc["status"] == "completed" else None
        if outcome.status == 200 and outcome.result != recorded:
            return state, "success answers the recorded result"
        if outcome.code == "busy":
            reads = [answer.value[0] for answer in state.histories[n] if isinstance(answer.value, tuple)]
            if reads and reads[-1] and author(reads[-1]["attempt_id"]) == n:
                return state, "no attempt is busy with its own claim"
        return state, None

    def at_end(self, state: State, explorer: Explorer) -> str | None:
        """While attempts come, nothing stays in progress for ever."""
        for _ in range(3):
            state, outcome = explorer.alone(replace(state, clock=state.clock + LEASE_OVER))
            if outcome.status != 500:
                break
        doc = state.doc(PATH)
        if doc is None or doc["status"] not in ("completed", "failed", "unknown"):
            return f"undisturbed attempts bring the step to an end, not to {doc and doc['status']}"
        return self.finished(state, str(doc["status"]))

    def finished(self, state: State, status: str) -> str | None:
        """What holds of the effect once the record is final."""
        return None


Act = Callable[["ExternalCase", int, Run, Replay], Any]


def effect(case: ExternalCase, n: int, run: Run, world: Replay) -> Any:
    """The plain body: one call outside, its answer the result."""
    return world.do(Call("effect"))


def marked_effect(case: ExternalCase, n: int, run: Run, world: Replay) -> Any:
    run.starting()
    return world.do(Call("effect"))


def extended_effect(case: ExternalCase, n: int, run: Run, world: Replay) -> Any:
    run.extend(300)
    return world.do(Call("effect"))


def refusing(error: type[Exception]) -> Act:
    """The first attempt's receiver refuses before anything is done; later ones accept."""

    def act(case: ExternalCase, n: int, run: Run, world: Replay) -> Any:
        if run.attempt == 1:
            raise error("refused")
        return world.do(Call("effect"))

    return act


@dataclass
class ExternalCase(StepCase):
    """An external step: how often its effect is begun is what matters."""

    on_unknown: OnUnknown
    act: Act = effect
    verify: bool = False
    marks_start: bool = False
    lease: float = 330.0
    """Seconds. A look at the receiver is believed only under a lease that outlasts time-out (300) and grace (30)."""

    def runtime(self, n: int, world: Replay) -> Runtime:
        return replace(super().runtime(n, world), settings=replace(SETTINGS, lease=self.lease))

    def after_tick(self, state: State) -> State:
        """Under the longer lease whatever ran before it ran out is gone: the function's time-out has ended it."""
        if self.lease < SETTINGS.lease or not self.verify:
            return state
        for n, history in enumerate(state.histories):
            state = state.ended(n) if history else state
        return state

    def handler(self, n: int, world: Replay) -> External:
        def look(run: Run, payload: Any) -> Done | Verdict:
            return Done("seen") if world.do(Call("look")) else NOT_DONE

        def body(run: Run, payload: Any) -> Any:
            return self.act(self, n, run, world)

        return External(body, self.on_unknown, look if self.verify else None, self.marks_start)

    def after_outside(self, state: State) -> str | None:
        allowed = 1 + _resolved(state, "redo")
        if self.on_unknown == "hold" and not self.verify and _count(state, "begun") > allowed:
            return "under hold the effect is begun once, unless an operator says redo"
        if self.verify and self.on_unknown == "hold" and _count(state, "arrived") > 1:
            return "with a look at the receiver first, the effect arrives once"
        return None

    def finished(self, state: State, status: str) -> str | None:
        arrived = _count(state, "arrived")
        if status == "completed" and not arrived and not _resolved(state, "done"):
            return "a step that is completed has had its effect"
        if self.on_unknown == "retry" and status == "unknown":
            return "under retry nothing waits for an operator"
        if self.act in (effect, marked_effect, extended_effect) and status == "failed":
            return "only a body that says so fails"
        return None


@dataclass
class ResolvedCase(ExternalCase):
    """An external step, and an operator who looks at it at any moment, then decides: the attempt with number 0."""

    decision: Decision = "redo"

    def is_operator(self, n: int) -> bool:
        return n == 0

    def attempt(self, n: int, world: Replay) -> Outcome:
        if not self.is_operator(n):
            return super().attempt(n, world)
        runtime = self.runtime(n, world)
        operator = Operator("p", "somebody", runtime.protocol, SETTINGS.retention, runtime.log)
        try:
            shown = runtime.protocol.read(PATH)
            if shown is None:
                return Outcome(0, "nothing to resolve")
            operator.resolve(
                CONTEXT.run_id,
                "charge",
                None,
                attempt_id=shown.attempt_id,
                outcome=self.decision,
                note="",
                result="said",
            )
            return Outcome(0, "resolved")
        except NotAccepted:
            return Outcome(0, "not accepted")
        except StoreError:
            return Outcome(0, "unreachable")

    def after_outcome(self, state: State, n: int, outcome: Outcome) -> tuple[State, str | None]:
        if outcome.code == "resolved" and _resolved(state, self.decision) != 1:
            return state, "a decision is recorded once"
        return super().after_outcome(state, n, outcome)


class TransactionalCase(StepCase):
    """A transactional step: its effect and its record are one commit."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def handler(self, n: int, world: Replay) -> Transactional:
        def body(transaction: list[str], run: Run, payload: Any) -> Any:
            if self.fails and n == 0:
                raise Permanent("refused")
            transaction.append("stock")
            return f"of attempt {n}"

        return Transactional(body)

    def after_write(self, before: State, after: State, n: int, call: Call) -> str | None:
        if _count(after, "committed") > 1:
            return "a transactional effect is committed at most once"
        doc = after.doc(PATH)
        if doc and (doc["status"] == "completed") != (_count(after, "committed") == 1):
            return "effect and record are one commit"
        return super().after_write(before, after, n, call)

    def finished(self, state: State, status: str) -> str | None:
        if (status == "completed") != (_count(state, "committed") == 1):
            return "the effect is there if and only if the record says completed"
        return None


def _resolved(state: State, decision: str) -> int:
    doc = state.doc(PATH)
    return sum(entry["what"] == f"resolved as {decision}" for entry in doc["resolutions"] or []) if doc else 0


def _count(state: State, what: str) -> int:
    return sum(1 for seen in state.outside if seen[0] == what)
