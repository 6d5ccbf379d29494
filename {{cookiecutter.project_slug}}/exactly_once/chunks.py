"""A chunk: one call for many items of a step, each with a record and an idempotency key of its own.

`input` is `{"items": [{"item": "a name", "input": any JSON}, ...]}`, or bare names for items without input; the
result is the list of the items' results in that order. Items that are done are skipped on a repeat, so a chunk that
got through half of its list before a crash goes on with the other half. An item that fails or is held does not keep
the others from being done; the answer then says which it was.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from .contract import StepRequest, Success, item_name
from .encoding import RESULT_LIMIT, digest
from .errors import LeaseLost, Refusal, StoreError
from .external import External
from .log import Log
from .runtime import Runtime

ITEM_COUNT = 5000
"""Items of one call."""

SHARE_OF_TIMEOUT = 0.8
"""No item is begun after this share of the function's time-out; the caller's retry does the rest."""

Outcome = Success | Refusal


@dataclass(frozen=True)
class Chunk:
    """An external step that is called with lists; `concurrency` items are at work at once."""

    each: External
    concurrency: int

    def handle(self, runtime: Runtime, request: StepRequest, log: Log) -> Success:
        """Raises Refusal."""
        return _combined(_Call(self, runtime, log, _requests(request)).go())


class _Call:
    def __init__(self, chunk: Chunk, runtime: Runtime, log: Log, requests: list[StepRequest]) -> None:
        self.chunk = chunk
        self.runtime = runtime
        self.log = log
        self.requests = requests
        self.end = runtime.host.monotonic() + SHARE_OF_TIMEOUT * runtime.settings.timeout
        self.stop = threading.Event()

    def go(self) -> list[tuple[StepRequest, Outcome]]:
        with ThreadPoolExecutor(self.chunk.concurrency, thread_name_prefix="chunk") as pool:
            outcomes = list(pool.map(self._one, self.requests))
        return list(zip(self.requests, outcomes, strict=True))

    def _one(self, request: StepRequest) -> Outcome:
        if self.stop.is_set() or self.runtime.host.monotonic() > self.end:
            return Refusal("more", "not begun: the time is nearly over, or Firestore does not answer")
        log = self.log.about(item=request.item)
        try:
            return self.chunk.each.handle(self.runtime, request, log)
        except Refusal as error:
            if error.event:
                log(error.event, reason=f"{error.code}: {error.message}")
            return error
        except LeaseLost as error:
            log("step.fenced", reason=str(error))
            return Refusal("fenced", str(error))
        except StoreError as error:
            self.stop.set()
            log("step.error", reason=str(error))
            return Refusal("unreachable", str(error))
        except BaseException:
            self.stop.set()
            raise


def _requests(request: StepRequest) -> list[StepRequest]:
    """Raises Refusal (malformed)."""
    if request.item is not None:
        raise Refusal("malformed", "a chunk step has no 'item': its items are in input.items", "step.refused")
    items = request.payload.get("items") if isinstance(request.payload, dict) else None
    if not isinstance(items, list) or len(items) > ITEM_COUNT:
        raise Refusal("malformed", f"input.items has to be a list of at most {ITEM_COUNT} items", "step.refused")
    found = [replace(request, item=name, payload=payload, digest=digest(payload)) for name, payload in _pairs(items)]
    doubled = [name for name, count in Counter(one.item for one in found).items() if count > 1]
    if doubled:
        raise Refusal("malformed", f"input.items names {doubled[0]!r} more than once", "step.refused")
    return found


def _pairs(items: list[Any]) -> Iterator[tuple[str, Any]]:
    for index, entry in enumerate(items):
        name, payload = (entry.get("item"), entry.get("input")) if isinstance(entry, dict) else (entry, None)
        name = item_name(name)
        if name is None:
            raise Refusal(
                "malformed", f'input.items[{index}] has to be a name, or {{"item": name, "input": ...}}', "step.refused"
            )
        yield name, payload


def _combined(outcomes: list[tuple[StepRequest, Outcome]]) -> Success:
    """One answer for all: the results, or the refusal of those that are not done, another call being worth it if for
    one.
    """
    open_ = [(request.item, outcome) for request, outcome in outcomes if isinstance(outcome, Refusal)]
    if open_:
        worst = max((outcome for _, outcome in open_), key=lambda outcome: _ORDER.index(outcome.status))
        some = "; ".join(f"{item!r}: {outcome.code}: {outcome.message[:200]}" for item, outcome in open_[:3])
        more = f"; and {len(open_) - 3} more" if len(open_) > 3 else ""
        raise Refusal(worst.code, f"{len(open_)} of {len(outcomes)} items are not done: {some}{more}")
    done = [outcome for _, outcome in outcomes if isinstance(outcome, Success)]
    text = f"[{','.join(outcome.text for outcome in done)}]"
    if len(text.encode()) > RESULT_LIMIT:
        raise Refusal(
            "failed",
            f"every item is done, but their results are over {RESULT_LIMIT} bytes together: make chunks smaller",
        )
    return Success(text, replayed=all(outcome.replayed for outcome in done))


_ORDER = [400, 422, 409, 500]
