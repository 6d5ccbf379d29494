"""What a step's record, as read, means for a request that finds it."""

from __future__ import annotations

from .contract import StepRequest
from .errors import Refusal
from .records import Record, Status


def may_take(record: Record, request: StepRequest) -> bool:
    """Whether the record may be taken over; False means that its result is to be replayed. Raises Refusal otherwise.

    A released record takes the new input: nothing was done for the old one. Any other record is bound to its input; the
    same step of the same run with another one means that the workflow was not deterministic.
    """
    status = record.status
    if status is Status.RELEASED:
        return True
    digest = record.fields.get("input_digest")
    if digest not in (None, request.digest):
        message = f"the step is {status} for another input; let an operator accept its result, or resolve it"
        raise Refusal("other_input", message, "step.refused")
    if status is Status.COMPLETED:
        return False
    if status is Status.FAILED:
        raise Refusal("failed", f"the step has failed: {record.error}; let an operator resolve it", "step.refused")
    if status is Status.UNKNOWN:
        message = "the step's outcome is unknown: look at the receiver, then let an operator resolve it"
        raise Refusal("held", message, "step.refused")
    if record.lease_left() > 0:
        message = f"another attempt is at work; its lease has {record.lease_left():.0f} s left"
        raise Refusal("busy", message, "step.duplicate")
    return True
