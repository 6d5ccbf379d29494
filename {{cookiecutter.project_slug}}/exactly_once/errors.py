"""Every exception of the runtime.

ExactlyOnceError
├── Retry               raised by a body: the effect surely did not happen; worth another attempt
├── Permanent           raised by a body: the effect surely did not happen and never will
├── LeaseLost           another attempt stands in the record, or the record is settled: this attempt is fenced
├── BadResult           a result that is not JSON, or too large
├── ConfigurationError  the process is set up wrongly
├── NotAccepted         an operator's request that the record, as it stands, does not allow
├── Refusal             a request that is answered without running the body; carries the HTTP status
└── StoreError          what a store call may end with
    ├── Exists          create: the record is there already
    ├── Changed         replace: the record is not the version that was expected, or is absent
    ├── Uncertain       a write whose outcome is unknown: applied, not applied, or still to be applied
    └── Unreachable     a read, or the start of a transaction, got no answer: nothing was written
"""

from __future__ import annotations


class ExactlyOnceError(Exception):
    """The root of the tree."""


class Retry(ExactlyOnceError):  # noqa: N818
    """Raised by a body whose effect surely did not happen. The record is released and the step answers 500."""


class Permanent(ExactlyOnceError):  # noqa: N818
    """Raised by a body whose effect surely did not happen and never will. The record becomes `failed`: 422."""


class LeaseLost(ExactlyOnceError):  # noqa: N818
    """This attempt is fenced: it can change nothing any more. Let it pass through the body; the step answers 409."""


class BadResult(ExactlyOnceError):  # noqa: N818
    """The result is not JSON, or larger than 256 KiB as JSON."""


class ConfigurationError(ExactlyOnceError):
    """A setting of the process is missing or wrong."""


class NotAccepted(ExactlyOnceError):  # noqa: N818
    """The record, as it stands, does not allow what the operator asked for."""


class Refusal(ExactlyOnceError):  # noqa: N818
    """An answer other than success.

    `code` is one of the contract's words; `status` the HTTP status that goes with it (`STATUS`); `event` is what to
    log when it is answered, None if the decision has been logged where it was made.
    """

    STATUS = {  # noqa: RUF012 - a table, never changed
        "malformed": 400,
        "wrong_step": 400,
        "wrong_pipeline": 400,
        "busy": 409,
        "fenced": 409,
        "failed": 422,
        "held": 422,
        "other_input": 422,
        "retry": 500,
        "error": 500,
        "unreachable": 500,
        "misconfigured": 500,
        "more": 500,
    }
    """409 and 500 are worth another call, 400 and 422 are not. 503 is never used: App Engine targets of Cloud
    Scheduler repeat it outside their retry budget."""

    def __init__(self, code: str, message: str, event: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.event = event

    @property
    def status(self) -> int:
        return self.STATUS[self.code]


class StoreError(ExactlyOnceError):
    """What a store call may end with, beside its answer."""


class Exists(StoreError):  # noqa: N818
    """The record is there already. It may be our own: a write that is sent twice is answered so."""


class Changed(StoreError):  # noqa: N818
    """The record is absent, or not the version that was expected. The change may be our own."""


class Uncertain(StoreError):  # noqa: N818
    """A write of unknown outcome.

    `hopeless`: the answer says that the request itself is at fault, so once a read has shown that the write was not
    applied there is no use in sending it again.
    """

    def __init__(self, message: str, *, hopeless: bool = False) -> None:
        super().__init__(message)
        self.hopeless = hopeless


class Unreachable(StoreError):  # noqa: N818
    """No usable answer; nothing was written by this call. `hopeless` as for `Uncertain`."""

    def __init__(self, message: str, *, hopeless: bool = False) -> None:
        super().__init__(message)
        self.hopeless = hopeless
