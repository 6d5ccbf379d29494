"""What a deployed function is told by its environment. Read once, at the first request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from .errors import ConfigurationError

GRACE = 30.0
"""Seconds between a function's time-out and the moment its code is surely gone: SIGTERM's 10 s and a margin."""

RUN_OUTLIVES_STEPS = timedelta(days=2)


@dataclass(frozen=True)
class Settings:
    """What every function is told."""

    pipeline: str
    project: str
    database: str
    retention: timedelta


@dataclass(frozen=True)
class StepSettings(Settings):
    """What a step is told. Times are in seconds."""

    step: str
    timeout: float
    lease: float
    max_attempts: int

    @property
    def lease_limit(self) -> float:
        """Seconds after a claim that no extension goes beyond: then the attempt's code is surely gone."""
        return max(self.lease, self.timeout + GRACE)

    @property
    def outlasts_attempt(self) -> bool:
        """Whether nothing of an attempt can be running any more when its lease runs out."""
        return self.lease >= self.timeout + GRACE


@dataclass(frozen=True)
class ProxySettings(Settings):
    """What the proxy is told."""

    scopes: tuple[str, ...]
    job: str
    time_zone: str
    workflow: str
    lease: float
    on_overlap: str


def step_settings(environ: Mapping[str, str]) -> StepSettings:
    """Raises ConfigurationError that names the variable."""
    return StepSettings(
        **_common(environ),
        step=_text(environ, "STEP"),
        timeout=_seconds(environ, "STEP_TIMEOUT", "300"),
        lease=_seconds(environ, "STEP_LEASE", "330"),
        max_attempts=int(_seconds(environ, "MAX_ATTEMPTS", "10")),
    )


def proxy_settings(environ: Mapping[str, str]) -> ProxySettings:
    """Raises ConfigurationError that names the variable."""
    scopes = tuple(scope.strip() for scope in environ.get("SCOPES", "").split(",") if scope.strip())
    zone = environ.get("TIME_ZONE") or "Etc/UTC"
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigurationError(f"TIME_ZONE={zone!r} is no time zone of the IANA database") from error
    overlap = environ.get("ON_OVERLAP") or "allow"
    if overlap not in ("allow", "skip", "queue"):
        raise ConfigurationError(f"ON_OVERLAP={overlap!r}: write allow, skip or queue")
    return ProxySettings(
        **_common(environ),
        scopes=scopes or (_text(environ, "SCOPE"),),
        job=environ.get("JOB", ""),
        time_zone=zone,
        workflow=_text(environ, "WORKFLOW"),
        lease=_seconds(environ, "PROXY_LEASE", "120"),
        on_overlap=overlap,
    )


def _common(environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        "pipeline": _text(environ, "PIPELINE"),
        "project": _text(environ, "GOOGLE_CLOUD_PROJECT"),
        "database": environ.get("FIRESTORE_DATABASE") or "(default)",
        "retention": timedelta(days=_seconds(environ, "RETENTION_DAYS", "90")),
    }


def _text(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise ConfigurationError(
            f"the environment variable {name} is not set: functions get it from deploy.sh or ./pipeline local"
        )
    return environ[name]


def _seconds(environ: Mapping[str, str], name: str, default: str) -> float:
    text = environ.get(name) or default
    try:
        number = float(text)
    except ValueError as error:
        raise ConfigurationError(f"{name}={text!r} is no number") from error
    if not 0 < number < 1e9:
        raise ConfigurationError(f"{name}={text!r} has to be above 0")
    return number
