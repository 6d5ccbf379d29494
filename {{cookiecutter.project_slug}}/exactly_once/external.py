"""An external step: claim, body, complete. Its effect lies outside Firestore, so no commit can hold both.

What can happen between any two lines, and what makes it harmless:

- killed after the claim: the lease runs out, the next attempt takes over and treats the outcome as unknown;
- killed after the effect: the same; the receiver knows the idempotency key, or `on_unknown="hold"` asks a person;
- overtaken while at work: another attempt id stands in the record, so every later write of this one fails (fenced);
- killed while an unknown outcome is being dealt with: the record is still in progress under our id, and what was known
  of the attempt before us (`started`) was carried over, so the next attempt meets the same question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from .contract import StepRequest, Success
from .encoding import ERROR_LIMIT, error_text, result_text
from .errors import BadResult, ExactlyOnceError, LeaseLost, Permanent, Refusal, Retry
from .identity import step_path
from .judging import may_take
from .log import Log
from .protocol import Claim, Offer
from .records import Record, Status
from .run import Lease, Run
from .runtime import Runtime
from .store import Fields

Body = Callable[[Run, Any], Any]

OnUnknown = Literal["retry", "hold"]

NOT_YET = ""
"""`started` of an attempt that is going to mark its start and has not done so. None: it does not mark."""


@dataclass(frozen=True)
class Done:
    """A `verify` hook's answer: the effect is there, and this is the step's result."""

    result: Any = None


class Verdict(Enum):
    """A `verify` hook's other answers."""

    NOT_DONE = "not done"
    UNKNOWN = "unknown"


NOT_DONE = Verdict.NOT_DONE
UNKNOWN = Verdict.UNKNOWN

Verify = Callable[[Run, Any], Done | Verdict]


@dataclass(frozen=True)
class External:
    """What an author declares: the body, and what an unknown outcome means."""

    body: Body
    on_unknown: OnUnknown
    verify: Verify | None = None
    marks_start: bool = False

    def handle(self, runtime: Runtime, request: StepRequest, log: Log) -> Success:
        """Raises Refusal, LeaseLost, StoreError."""
        attempt_id = runtime.host.new_id()
        log = log.about(attempt_id=attempt_id)
        claim = runtime.protocol.claim(_path(runtime, request), self._offer(runtime, request, attempt_id))
        if isinstance(claim, Record):
            log("step.replayed", attempt=claim.attempts)
            return Success(str(claim.fields["result"]), replayed=True)
        return _Attempt(self, runtime, request, claim, log.about(attempt=claim.attempt)).go()

    def _offer(self, runtime: Runtime, request: StepRequest, attempt_id: str) -> Offer:
        unmarked = NOT_YET if self.marks_start else None
        fresh: dict[str, Any] = {
            "step": request.step,
            "input_digest": request.digest,
            "expire_at": runtime.expiry(),
        }
        if request.item is not None:
            fresh["item"] = request.item
        if unmarked is not None:
            fresh["started"] = unmarked

        def taken_over(seen: Record) -> Fields:
            open_question = seen.abandoned() and seen.fields.get("started") != NOT_YET
            return {
                "input_digest": request.digest,
                "crashes": seen.crashes + seen.abandoned(),
                "started": seen.fields.get("started") if open_question else unmarked,
                "expire_at": runtime.expiry(),
            }

        return Offer(attempt_id, runtime.settings.lease, fresh, lambda seen: may_take(seen, request), taken_over)


class _Attempt:
    """One attempt that holds its record."""

    def __init__(self, step: External, runtime: Runtime, request: StepRequest, claim: Claim, log: Log) -> None:
        self.step = step
        self.runtime = runtime
        self.request = request
        self.claim = claim
        self.log = log
        self.lease = Lease(runtime.protocol, claim, runtime.settings.lease_limit, log, marks=step.marks_start)
        self.run = Run(request.context, request.step, request.item, claim.attempt, self.lease)

    def go(self) -> Success:
        before = self.claim.before
        if before is None:
            self.log("step.claimed")
            return self._run_body()
        if not before.abandoned():
            self.log("step.taken_over", reason=f"an earlier attempt left it {before.status}")
            return self._run_body()
        self.log("step.taken_over", reason="the lease of an earlier attempt ran out", previous=before.attempt_id)
        return self._after_crash(before)

    def _after_crash(self, before: Record) -> Success:
        """An earlier attempt ended without a word. Unless it had yet to start its effect, its outcome is unknown."""
        if before.fields.get("started") != NOT_YET:
            verdict = self._verify()
            if isinstance(verdict, Done):
                return self._complete(verdict.result)
            if verdict is UNKNOWN and self.step.on_unknown == "hold":
                raise self._hold(f"attempt {before.attempts} ended without a word")
        crashes = before.crashes + 1
        if crashes >= self.runtime.settings.max_attempts:
            last = f"; last error: {before.error}" if before.error else ""
            raise self._fail(f"{crashes} attempts ended without a word, as many as max_attempts allows{last}")
        return self._run_body()

    def _run_body(self) -> Success:
        self.log("step.running")
        try:
            value = self.step.body(self.run, self.request.payload)
        except Retry as error:
            raise self._release("retry", error_text(error)) from error
        except Permanent as error:
            raise self._fail(error_text(error) or "Permanent") from error
        except LeaseLost:
            raise
        except Exception as error:
            return self._unknown(error)
        except BaseException as error:  # the process is being ended: say what is known, then let it end
            self._unknown_now(error)
            raise
        return self._complete(value)

    def _unknown(self, error: Exception) -> Success:
        """The body raised what says nothing of its effect."""
        self.log("step.error", reason=type(error).__name__, traceback=self.runtime.trace_text(error))
        if not self._unmarked():
            verdict = self._verify()
            if isinstance(verdict, Done):
                return self._complete(verdict.result)
            if verdict is UNKNOWN and self.step.on_unknown == "hold":
                raise self._hold(_text(error)) from error
        raise self._release("error", _text(error), public=type(error).__name__) from error

    def _unknown_now(self, error: BaseException) -> None:
        """What cannot be written must not keep the process from ending: the lease will run out."""
        try:
            if self.step.on_unknown == "hold" and not self._unmarked():
                self._hold(_text(error))
            else:
                self._release("error", _text(error))
        except ExactlyOnceError as failure:
            self.log("step.error", reason=f"{type(error).__name__}, and not recorded: {failure}")

    def _unmarked(self) -> bool:
        """Whether this attempt surely has not begun its effect: it would have marked that."""
        return self.step.marks_start and not self.lease.marked

    def _verify(self) -> Done | Verdict:
        """What the outside system says. "Not done" counts only where no earlier attempt can still be at work."""
        if self.step.verify is None:
            return UNKNOWN
        try:
            verdict = self.step.verify(self.run, self.request.payload)
        except LeaseLost:
            raise
        except Exception as error:
            self.log("step.error", reason=f"verify: {type(error).__name__}", traceback=self.runtime.trace_text(error))
            return UNKNOWN
        if not isinstance(verdict, Done | Verdict):
            said = f"verify: answered a {type(verdict).__name__} instead of Done(result), NOT_DONE or UNKNOWN"
            self.log("step.error", reason=said)
            return UNKNOWN
        if verdict is NOT_DONE and not self.runtime.settings.outlasts_attempt:
            self.log("step.verified", reason="not done, but the lease is shorter than time-out + grace: not believed")
            return UNKNOWN
        self.log("step.verified", reason="done" if isinstance(verdict, Done) else verdict.value)
        return verdict

    def _complete(self, value: Any) -> Success:
        """The effect is done. From here on the attempt completes, or fails for its result; it never releases."""
        try:
            text = result_text(value)
        except BadResult as error:
            raise self._fail(f"the effect is done, but its result cannot be kept: {error}") from error
        self._settle(
            {"status": Status.COMPLETED.value, "result": text, "error": None, "expire_at": self.runtime.expiry()}
        )
        self.log("step.completed")
        return Success(text, replayed=False)

    def _release(self, code: str, reason: str, public: str | None = None) -> Refusal:
        """The refusal to raise, once the record says it."""
        self._settle({"status": Status.RELEASED.value, "error": reason[:ERROR_LIMIT]})
        self.log("step.released", reason=public or reason)
        return Refusal(code, public or reason or "the step asks to be called again")

    def _fail(self, reason: str) -> Refusal:
        self._settle({"status": Status.FAILED.value, "error": reason[:ERROR_LIMIT], "expire_at": None})
        self.log("step.failed", reason=reason)
        return Refusal("failed", reason)

    def _hold(self, reason: str) -> Refusal:
        self._settle({"status": Status.UNKNOWN.value, "error": reason[:ERROR_LIMIT], "expire_at": None})
        self.log("step.held")
        return Refusal("held", "the outcome is unknown: look at the receiver, then let an operator resolve the step")

    def _settle(self, fields: Fields) -> None:
        self.runtime.protocol.settle(self.claim, fields)


def _path(runtime: Runtime, request: StepRequest) -> str:
    return step_path(runtime.settings.pipeline, request.context.run_id, request.step, request.item)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error_text(error)}"
