"""The decorators: from an author's body to the function that functions-framework serves."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, Protocol

from .chunks import Chunk
from .contract import HttpRequest, Response, StepRequest, Success, parse, read_body, refusal, success
from .errors import ConfigurationError, LeaseLost, Refusal, StoreError
from .external import Body, External, OnUnknown, Verify
from .log import Log, trace_of
from .runtime import Runtime, current
from .transactional import Body as TransactionalBody
from .transactional import Transactional

Endpoint = Callable[[HttpRequest], Response]


class Handler(Protocol):
    """A kind of step: External, Transactional or Chunk."""

    def handle(self, runtime: Runtime, request: StepRequest, log: Log) -> Success: ...


def transactional_step(body: TransactionalBody) -> Endpoint:
    """A step whose whole effect is Firestore writes: `def main(transaction, run, payload)`. Exactly once.

    The body reads and writes with `transaction` (a `google.cloud.firestore.Transaction`, reads before writes) and
    returns a JSON result of at most 256 KiB; its writes and the record commit as one. It may run again on contention,
    so it does nothing outside the transaction. It may raise `Permanent` (nothing but `failed` is written, 422) and
    anything else (nothing is written, 500).
    """
    return _endpoint(body, Transactional(body))


def step(
    *, on_unknown: OnUnknown, verify: Verify | None = None, marks_start: bool = False
) -> Callable[[Body], Endpoint]:
    """A step whose effect lies outside Firestore: `def main(run, payload)`.

    Once, as long as the receiver honours `run.idempotency_key`. The body returns a JSON result of at most 256 KiB, or
    raises `Retry` (surely not done, 500), `Permanent` (surely never, 422), or anything else, time-outs included: an
    unknown outcome, as is the end of an attempt without a word. Then `verify(run, payload)` looks at the receiver, if
    there is one, and answers `Done(result)`, `NOT_DONE` or `UNKNOWN`; if that does not settle it, `on_unknown="retry"`
    repeats the body with the same key, and "hold" runs nothing until an operator has resolved the step.

    `marks_start`: the body calls `run.starting()` just before its effect; what ends before the mark is then no
    unknown outcome.
    """
    return lambda body: _endpoint(body, _external(body, on_unknown, verify, marks_start))


def chunk_step(
    *, on_unknown: OnUnknown, verify: Verify | None = None, marks_start: bool = False, concurrency: int = 8
) -> Callable[[Body], Endpoint]:
    """As `step`, for thousands of small items: one call carries a list, the body gets one item of it at a time.

    See `exactly_once.chunks` for `input` and result. `concurrency` threads run bodies at once.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency!r}: at least one thread has to run bodies")
    return lambda body: _endpoint(body, Chunk(_external(body, on_unknown, verify, marks_start), concurrency))


def _external(body: Body, on_unknown: OnUnknown, verify: Verify | None, marks_start: bool) -> External:
    if on_unknown not in ("retry", "hold"):
        raise ValueError(f'on_unknown={on_unknown!r}: say "retry" or "hold"')
    if verify is not None:
        _check_plain(verify)
    return External(body, on_unknown, verify, marks_start)


def _check_plain(function: Callable[..., Any]) -> None:
    """Calling a coroutine or a generator function runs nothing of it, yet looks like success. Raises TypeError."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(function) for is_kind in kinds):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"{name} has to be a plain function: without async, and without yield")


def _endpoint(body: Callable[..., Any], handler: Handler) -> Endpoint:
    _check_plain(body)

    @functools.wraps(body)
    def main(request: HttpRequest) -> Response:
        try:
            runtime = current()
        except ConfigurationError as error:
            Log()("step.error", reason=str(error), step=os.environ.get("STEP"))
            return refusal(Refusal("misconfigured", str(error)))
        return serve(handler, runtime, request)

    return main


def serve(handler: Handler, runtime: Runtime, request: HttpRequest) -> Response:
    """One request, answered; every refusal and error has its line in the log."""
    settings = runtime.settings
    log = runtime.log.about(
        pipeline=settings.pipeline, step=settings.step, trace=trace_of(dict(request.headers), settings.project)
    )
    try:
        parsed = parse(request.method, read_body(request), settings.step, settings.pipeline)
        log = log.about(run_id=parsed.context.run_id, item=parsed.item)
        return success(parsed, handler.handle(runtime, parsed, log))
    except Refusal as error:
        if error.event:
            log(error.event, reason=f"{error.code}: {error.message}")
        return refusal(error)
    except LeaseLost as error:
        log("step.fenced", reason=str(error))
        return refusal(Refusal("fenced", str(error)))
    except StoreError as error:
        log("step.error", reason=str(error))
        return refusal(Refusal("unreachable", str(error)))
    except Exception as error:
        log("step.error", reason=type(error).__name__, traceback=runtime.trace_text(error))
        return refusal(Refusal("error", type(error).__name__))
