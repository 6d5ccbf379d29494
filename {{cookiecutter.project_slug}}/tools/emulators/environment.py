"""What each part of the chain is told: the project's settings, as deploy.sh would hand them out, for this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tools.emulators.scheduler import Job, RetryPolicy
from tools.emulators.services import Spec, function
from tools.emulators.sinks import Sinks
from tools.emulators.storage import NAME as FIRESTORE
from tools.settings import Settings, SettingsError, workflow_environment

PROXY = "proxy"
WORKFLOWS = "workflows"
SCHEDULER = "scheduler"

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "SSL_CERT_FILE", "SYSTEMROOT")
"""Of this shell's own environment: no more, so that nothing works here by a variable that the cloud does not have."""

Wire = Callable[[str, str, str], str]
"""(caller, callee, host:port of the callee) -> host:port for the caller."""

AddressFor = Callable[[str, str], str]
"""(caller, callee) -> host:port."""


def account(settings: Settings, part: str) -> str:
    """E-mail of the service account of `scheduler`, `proxy`, `workflow` or a step."""
    return f"{settings.pipeline}-{part.replace('_', '-')}@{settings.project}.iam.gserviceaccount.com"


def invokers(settings: Settings, service: str) -> dict[str, str]:
    """Who may call a service: e-mail -> the caller's name among faults."""
    if service == PROXY:
        return {account(settings, "scheduler"): SCHEDULER}
    return {account(settings, "workflow"): WORKFLOWS}


def receivers(settings: Settings) -> dict[str, frozenset[str]]:
    """Step -> the settings with the URLs of what it writes to."""
    return {step.name: frozenset(step.receivers) for step in settings.steps.values()}


def connectors(settings: Settings) -> dict[str, str]:
    """Service of a `googleapis.*` call -> URL of its stand-in, from CONNECTORS. Raises SettingsError."""
    entry = settings.entries.get("CONNECTORS")
    found = {}
    for pair in entry.value.split() if entry else ():
        service, equals, url = pair.partition("=")
        if not (service and equals and url.startswith(("http://", "https://"))):
            raise SettingsError(
                f"{entry.where if entry else ''}: CONNECTORS has {pair!r}; write service=http://host:port"
            )
        found[service] = url
    return found


def job(settings: Settings, url: str) -> Job:
    """The Scheduler's job, as deploy.sh creates it."""
    retry = RetryPolicy(
        max_attempts=settings.max_retry_attempts,
        max_duration=settings.max_retry_duration,
        min_backoff=settings.min_backoff,
        max_backoff=settings.max_backoff,
        max_doublings=settings.max_doublings,
    )
    return Job(
        name=settings.job,
        schedule=settings.schedule,
        time_zone=settings.time_zone,
        url=url,
        account=account(settings, "scheduler"),
        audience=url,
        retry=retry,
        attempt_deadline=settings.attempt_deadline,
        headers={"X-Exactly-Once-Scope": settings.scope},
    )


def sweep_job(settings: Settings, url: str) -> Job:
    """The job that starts queued slots, every minute: deploy.sh creates it with ON_OVERLAP=queue."""
    retry = RetryPolicy()  # the next one is a minute away
    name, headers = f"{settings.job}-sweep", {"X-Exactly-Once-Sweep": "queued"}
    return replace(job(settings, url), name=name, schedule="* * * * *", retry=retry, headers=headers)


def workflow_env(settings: Settings, urls: Mapping[str, str]) -> dict[str, str]:
    """The workflow's variables: where its steps are."""
    return workflow_environment({step: urls[step] for step in settings.steps})


def specs(
    settings: Settings, project: Path, receivers_url: str, address_for: AddressFor, sinks: Sinks, wire: Wire
) -> list[Spec]:
    """The proxy and every step."""
    proxy = {
        **_common(settings, project, PROXY, address_for),
        **settings.proxy_environment(),
        "WORKFLOWS_EMULATOR_HOST": address_for(PROXY, WORKFLOWS),
    }
    found = [function(PROXY, project / "proxy" / "main.py", proxy, project, settings.proxy_timeout)]
    for step in settings.steps.values():
        stand_ins = {name: f"{receivers_url}/{step.name}/{name}" for name in step.receivers}
        words = step.entries["SINKS"].value if "SINKS" in step.entries else ""
        there = sinks.environment(step.name, words, receivers_url, partial(wire, step.name))
        env = {
            **_common(settings, project, step.name, address_for),
            **settings.step_environment(step.name, stand_ins),
            **{secret.name: os.environ.get(secret.name, f"local-{secret.secret}") for secret in step.secrets},
            **{name: value for name, value in there.items() if not settings.value(name)},
            "THREADS": str(step.threads),
        }
        found.append(function(step.name, step.folder / "main.py", env, project, step.timeout))
    return found


def _common(settings: Settings, project: Path, name: str, address_for: AddressFor) -> dict[str, str]:
    service = settings.proxy_service if name == PROXY else settings.service(name)
    return {
        **{key: os.environ[key] for key in INHERITED if key in os.environ},
        "PYTHONPATH": str(project),
        "PYTHONUNBUFFERED": "1",
        "K_SERVICE": service,
        "K_REVISION": f"{service}-00001-loc",
        "FIRESTORE_EMULATOR_HOST": address_for(name, FIRESTORE),
    }
