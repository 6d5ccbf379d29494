"""Quotas and limits of Workflows, as published; sizes are in bytes of UTF-8 or of compact JSON.

A test passes smaller `Limits`; everything else uses the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

ARGUMENT_LIMIT = 32 * 1024
SOURCE_LIMIT = 128 * 1024
RESULT_LIMIT = 512 * 1024
RESPONSE_LIMIT = 2 * 1024 * 1024
STRING_LIMIT = 256 * 1024
NESTING_LIMIT = 200  # lists and maps in each other, in a source and in a value; Google publishes no such limit
EXPRESSION_LIMIT = 400  # characters of a whole ${...}

ASSIGNMENTS_LIMIT = 50  # entries of one assign step
CONDITIONS_LIMIT = 50  # entries of one switch
PARAMETERS_LIMIT = 10  # of a subworkflow
BRANCHES_LIMIT = 10  # of one parallel step
BRANCHES_MINIMUM = 2

HTTP_TIMEOUT = 300.0  # seconds, when a call gives none
HTTP_TIMEOUT_LIMIT = 1800.0

ENVIRONMENT_LIMIT = 20  # variables of one's own
ENVIRONMENT_VALUE_LIMIT = 4 * 1024


@dataclass(frozen=True)
class Limits:
    """What one execution may use."""

    steps: int = 100_000
    memory: int = 512 * 1024  # all variables together
    call_depth: int = 20
    parallel_depth: int = 2
    concurrency: int = 20  # branches and iterations at once
    branch_errors: int = 100  # kept in an UnhandledBranchError
    seconds: float = 365 * 24 * 3600.0
