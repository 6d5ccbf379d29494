"""An external step with nothing in it yet.

Input: any JSON. Result: what the body returns, JSON of at most 256 KiB.
"""

from __future__ import annotations

from typing import Any

from exactly_once import Run, step


@step(on_unknown="hold")
def main(run: Run, payload: Any) -> dict[str, Any]:
    """Raise `Retry` where surely nothing was done, `Permanent` where surely nothing was and never will be.

    Anything else that is raised leaves the outcome unknown, and so does a crash: the step is held for a person. Send
    `run.idempotency_key` with the effect. If the receiver honours it, declare the step with on_unknown="retry".
    """
    return {"slot": run.slot.isoformat() if run.slot else None, "input": payload}
