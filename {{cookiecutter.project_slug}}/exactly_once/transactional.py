"""A transactional step: its Firestore writes and its `completed` record are one commit.

What can happen between any two lines, and what makes it harmless:

- killed anywhere: the commit has happened with the record, or neither has;
- the commit's outcome is unknown: a new transaction reads the record; our attempt id there means that it was applied,
  and the body does not run again;
- a commit that was given up lands late: its transaction was rolled back, and its write of the record still demands the
  record as it was read;
- a duplicate runs at the same time: both bodies run, one commit succeeds, the other one's body meets the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .contract import StepRequest, Success
from .encoding import ERROR_LIMIT, error_text, result_text
from .errors import BadResult, Changed, ExactlyOnceError, Exists, Permanent, Refusal, Retry, Uncertain, Unreachable
from .identity import step_path
from .judging import may_take
from .log import Log
from .records import Record, Status
from .run import Run
from .runtime import Runtime
from .store import SERVER_TIME, Budget, Fields, Patience, Snapshot, TransactionToken

Body = Callable[[Any, Run, Any], Any]

TRIES = 8
"""How often the body may run for one request: contention ends it with 500, and the workflow's retry goes on."""


@dataclass(frozen=True)
class Transactional:
    """What an author declares: the body."""

    body: Body

    def handle(self, runtime: Runtime, request: StepRequest, log: Log) -> Success:
        """Raises Refusal, LeaseLost, StoreError."""
        attempt_id = runtime.host.new_id()
        return _Attempt(self.body, runtime, request, attempt_id, log.about(attempt_id=attempt_id)).go()


class _Attempt:
    def __init__(self, body: Body, runtime: Runtime, request: StepRequest, attempt_id: str, log: Log) -> None:
        self.body = body
        self.runtime = runtime
        self.request = request
        self.attempt_id = attempt_id
        self.log = log
        self.path = step_path(runtime.settings.pipeline, request.context.run_id, request.step, request.item)
        self.seen: Record | None = None
        """The record as the last transaction read it."""
        self.doubt: Uncertain | None = None
        """A write of ours whose outcome the next transaction's reading has to tell."""
        self.outcome: Success | None = None

    def go(self) -> Success:
        """Transactions, until one has committed or has read what decides."""
        token = TransactionToken()
        budget = Budget(self.runtime.host, Patience(tries=TRIES))
        while True:
            try:
                self.runtime.store.transaction(self.path, self._work, token, budget.rpc())
                assert self.outcome is not None, "a transaction that ends well has an outcome"
                self.log("step.replayed" if self.outcome.replayed else "step.completed")
                return self.outcome
            except Unreachable as error:
                budget.spend(error)
            except Uncertain as error:
                self.doubt = error
                budget.renew()
                budget.spend(Uncertain(str(error)))  # even a hopeless one: first read what became of it
            except Permanent as error:
                reason = error_text(error) or "Permanent"
                if self._record(Status.FAILED, reason):
                    raise Refusal("failed", reason) from error
                budget.renew()
                budget.spend(None)
            except _LeftOver as error:
                if self._record(Status.UNKNOWN, str(error)):
                    raise Refusal("held", str(error)) from error
                budget.spend(None)
            except (Refusal, AssertionError):
                raise
            except Retry as error:
                reason = error_text(error) or "the step asks to be called again"
                self.log("step.released", reason=reason)
                raise Refusal("retry", reason) from error
            except BadResult as error:
                self.log("step.error", reason=str(error))
                raise Refusal("error", str(error)) from error
            except Exception as error:
                self.log("step.error", reason=type(error).__name__, traceback=self.runtime.trace_text(error))
                raise Refusal("error", type(error).__name__) from error

    def _work(self, transaction: Any, snapshot: Snapshot) -> Fields | None:
        """The inside of one transaction: the fields to commit with the body's writes, or None if there are none."""
        record = self.seen = Record.of(snapshot)
        doubt, self.doubt = self.doubt, None
        ours = record is not None and record.attempt_id == self.attempt_id
        if record and ours and record.status is Status.FAILED:
            self.log("step.failed", reason=record.error)
            raise Refusal("failed", record.error)
        if record and not may_take(record, self.request):
            self.outcome = Success(str(record.fields["result"]), replayed=not ours)
            return None
        if record and record.abandoned():
            raise _LeftOver(f"attempt {record.attempts}, of an external step of this name, ended without a word")
        if doubt and doubt.hopeless:  # it was not applied, and would not be this time
            raise Refusal("error", str(doubt))
        attempt = record.attempts + 1 if record else 1
        self.log("step.running", attempt=attempt)
        value = self.body(
            transaction, Run(self.request.context, self.request.step, self.request.item, attempt), self.request.payload
        )
        text = result_text(value)
        self.outcome = Success(text, replayed=False)
        return self._fields(Status.COMPLETED, result=text, expire_at=self.runtime.expiry())

    def _record(self, status: Status, reason: str) -> bool:
        """Write a status that waits for an operator, without a body's effect. False: another transaction has to
        look.
        """
        fields = self._fields(status, error=reason[:ERROR_LIMIT], expire_at=None)
        store, seconds = self.runtime.store, self.runtime.protocol.patience.rpc
        try:
            if self.seen is None:
                store.create(self.path, fields, seconds)
            else:
                store.replace(self.path, fields, self.seen.version, seconds)
        except (Exists, Changed):
            return False
        except Uncertain as error:
            self.doubt = error
            return False
        self.log("step.failed" if status is Status.FAILED else "step.held", reason=reason)
        return True

    def _fields(self, status: Status, **changed: Any) -> Fields:
        """The whole record. A transactional step has no lease: it is never in progress."""
        fields = {
            "status": status.value,
            "attempt_id": self.attempt_id,
            "attempts": self.seen.attempts + 1 if self.seen else 1,
            "claimed_at": SERVER_TIME,
            "lease_seconds": 0.0,
            "step": self.request.step,
            "item": self.request.item,
            "input_digest": self.request.digest,
            "result": None,
            "error": None,
            **changed,
        }
        return fields if self.seen else {name: value for name, value in fields.items() if value is not None}


class _LeftOver(ExactlyOnceError):  # noqa: N818
    """An abandoned record: only an external step writes one, so the step has changed its kind."""
