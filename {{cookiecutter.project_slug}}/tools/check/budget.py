"""The time budget: which time has to outlast which, so that no crash and no retry loses a slot or doubles an effect."""

from __future__ import annotations

from collections.abc import Iterator

from tools.check.calls import StepCall, Times, step_calls, times
from tools.check.findings import Finding, Level, Project
from tools.check.schedule import shortest_period
from tools.check.sources import extends_its_lease, holds_a_lease
from tools.emulators.scheduler import RetryPolicy
from tools.settings import Settings, Step

GRACE = 30
"""Seconds from a function's time-out until its code is surely gone: SIGTERM's 10 s and a margin."""

HTTP_LIMIT = 1800  # seconds that Workflows lets one HTTP call take
DAY = 86_400


def budget(project: Project) -> Iterator[Finding]:
    """Every rule that the times of this project break."""
    yield from _attempts(project)
    yield from _retries(project)
    kept = times(project.workflow) if project.workflow is not None else None
    if kept is not None:
        for step in project.settings.steps.values():
            yield from _step(project, step, kept)
    elif project.workflow is not None and project.settings.steps:
        yield Finding(
            "error",
            project.workflow.file,
            1,
            "run_step has no http call in a try with a retry of plain numbers, so a busy or crashed step fails the run",
            "Give run_step a try with retry, as the template has it",
        )
    yield from _retention(project, kept)


def _attempts(project: Project) -> Iterator[Finding]:
    settings = project.settings
    if settings.attempt_deadline < settings.proxy_timeout:
        yield Finding(
            "error",
            *project.place("ATTEMPT_DEADLINE"),
            f"Scheduler gives up an attempt after {settings.attempt_deadline} s, while the proxy may work for "
            f"{settings.proxy_timeout} s: a start that succeeds late counts as failed and is tried again",
            f"Set ATTEMPT_DEADLINE to at least PROXY_TIMEOUT ({settings.proxy_timeout})",
        )
    least = max(settings.attempt_deadline, settings.proxy_timeout)
    if settings.proxy_lease < least:
        yield Finding(
            "error",
            *project.place("PROXY_LEASE"),
            f"a delivery may take over after {settings.proxy_lease} s while an earlier one still works (up to "
            f"{least} s): "
            "two executions of one slot may start",
            f"Set PROXY_LEASE to at least {least}",
        )


def retry_policy(settings: Settings) -> RetryPolicy:
    """The job's, as Scheduler carries it out."""
    return RetryPolicy(
        settings.max_retry_attempts,
        settings.max_retry_duration,
        settings.min_backoff,
        settings.max_backoff,
        settings.max_doublings,
    )


def retry_gaps(settings: Settings) -> list[float]:
    """Seconds before each retry that surely happens when attempts fail at once, by either reading of "both limits"."""
    policy, gaps = retry_policy(settings), list[float]()
    while (gap := policy.next_gap(len(gaps), sum(gaps))) is not None:
        gaps.append(gap)
    return gaps


def retry_window(settings: Settings) -> float:
    """Seconds from a slot until its last attempt has ended, if each takes its whole deadline.

    "Until both limits are reached" may mean that retries go on until the duration too has passed: then one more
    back-off and one more attempt may lie beyond it.
    """
    policy = retry_policy(settings)
    gaps = sum(policy.gap(retry) for retry in range(1, settings.max_retry_attempts + 1))
    window = gaps + (settings.max_retry_attempts + 1) * settings.attempt_deadline
    if settings.max_retry_attempts and settings.max_retry_duration:
        window = max(window, settings.max_retry_duration + settings.max_backoff + settings.attempt_deadline)
    return window


def _retries(project: Project) -> Iterator[Finding]:
    settings = project.settings
    gaps = retry_gaps(settings)
    if not gaps or gaps[-1] <= settings.proxy_lease:
        last = f"the last retry comes {gaps[-1]:.0f} s after the one before" if gaps else "there is no retry"
        yield Finding(
            "error",
            *project.place("MAX_BACKOFF" if gaps else "MAX_RETRY_ATTEMPTS"),
            f"{last}, but a crashed proxy holds its claim for {settings.proxy_lease} s: a slot whose proxy crashes "
            f"may be lost",
            "Raise MIN_BACKOFF, MAX_BACKOFF, MAX_DOUBLINGS or MAX_RETRY_ATTEMPTS until the last gap outlasts "
            "PROXY_LEASE "
            f"({settings.proxy_lease}), within MAX_RETRY_DURATION ({settings.max_retry_duration})",
        )
    period = shortest_period(settings.schedule, settings.time_zone)
    window = retry_window(settings)
    if period is not None and window >= period:
        yield Finding(
            "warning",
            *project.place("MAX_RETRY_DURATION"),
            f"the retries of one slot may go on for {window:.0f} s, and the next slot is due after {period:.0f} s: "
            f"then Scheduler "
            "ends them, or skips the next slot",
            "Shorten the retries (back-off, attempts, MAX_RETRY_DURATION, ATTEMPT_DEADLINE) or run less often",
        )


def _step(project: Project, step: Step, kept: Times) -> Iterator[Finding]:
    assert project.workflow is not None
    workflow = project.workflow.file
    if step.timeout > kept.http_timeout:
        yield Finding(
            "error",
            workflow,
            kept.timeout_at.line,
            f"the workflow stops waiting after {kept.http_timeout:.0f} s, while {step.name} may take {step.timeout} s: "
            "its result is lost and it is called again while it still works",
            f"Set the timeout of run_step to at least {step.timeout}, or lower TIMEOUT of {step.name}",
        )
    if not holds_a_lease(step):
        return
    if step.lease < step.timeout + GRACE:
        level: Level = "warning" if extends_its_lease(step) else "error"
        yield Finding(
            level,
            *project.place("LEASE", step.name),
            f"another attempt of {step.name} may begin after {step.lease} s, while the code of the first can run for "
            f"{step.timeout + GRACE} s (its time-out and {GRACE} s): the effect may happen twice side by side",
            f"Set LEASE to at least {step.timeout + GRACE}"
            + (", or be sure that run.extend() is called in time" if level == "warning" else ""),
        )
    if kept.window <= step.lease:
        yield Finding(
            "error",
            workflow,
            kept.at.line,
            f"run_step tries again for {kept.window:.0f} s, but a crashed attempt of {step.name} holds its claim for "
            f"{step.lease} s: one crash fails the whole run",
            f"Raise max_retries or the delays of run_step's retry until they add up to more than {step.lease} s",
        )


def _retention(project: Project, kept: Times | None) -> Iterator[Finding]:
    settings = project.settings
    retention = settings.retention_days * DAY
    window = retry_window(settings)
    longest = longest_execution(list(step_calls(project.workflow)), kept) if project.workflow and kept else 0.0
    if retention <= max(window, longest):
        yield Finding(
            "error",
            *project.place("RETENTION_DAYS"),
            f"records are deleted after {settings.retention_days} days, but a run may still be at work after "
            f"{max(window, longest) / DAY:.1f} days: a step whose record is gone is carried out again",
            f"Set RETENTION_DAYS to at least {int(max(window, longest) / DAY) + 1}",
        )
    period = shortest_period(settings.schedule, settings.time_zone)
    if period is not None and retention < 2 * period:
        yield Finding(
            "warning",
            *project.place("RETENTION_DAYS"),
            f"records are deleted after {settings.retention_days} days, before the next slot but one: ./pipeline "
            f"gaps and "
            "runs see less than two periods",
            f"Set RETENTION_DAYS to at least {int(2 * period / DAY) + 1}",
        )


def longest_execution(calls: list[StepCall], kept: Times) -> float:
    """Seconds until a run has surely ended, if every call takes all its tries to the end; a loop counts once."""
    return len(calls) * kept.longest
