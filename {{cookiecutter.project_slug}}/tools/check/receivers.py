"""Receivers outside: in the cloud their URLs have to be real ones."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from tools.check.findings import Finding, Level, Project
from tools.settings import Step


def receivers(project: Project, level: Level) -> Iterator[Finding]:
    """`level` of what only matters in the cloud: a laptop has stand-ins."""
    yield from _sinks(project, level)
    for name, steps in project.settings.receivers().items():
        url, who = project.settings.value(name), ", ".join(steps)
        if not url:
            yield Finding(
                level,
                *project.place(name),
                f"{name} is empty: in the cloud {who} has nowhere to write to",
                f"Set {name} to the receiver's URL",
            )
            continue
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            yield Finding(
                "error",
                *project.place(name),
                f"{name} is {url!r}: {who} cannot call that",
                "Write a URL such as https://api.example.com",
            )
        elif _is_this_machine(parts.hostname):
            yield Finding(
                level,
                *project.place(name),
                f"{name} is on {parts.hostname}: in the cloud that is the function itself, and {who} fails every time",
                "Set it to the receiver's own host",
            )
        elif parts.scheme == "http":
            yield Finding(
                "warning",
                *project.place(name),
                f"{name} is http: keys and payloads travel in the clear, and a proxy on the way may repeat them",
                "Use https",
            )


def _sinks(project: Project, level: Level) -> Iterator[Finding]:
    """Settings that name a bucket, a table, a queue, a topic (SINKS in step.env)."""
    for step in project.settings.steps.values():
        for setting in sink_settings(step):
            if setting in step.settings and not project.settings.value(setting):
                yield Finding(
                    level,
                    *project.place(setting),
                    f"{setting} is empty: in the cloud {step.name} has nowhere to write to",
                    f"Set {setting}; functions/{step.name}/README.md says to what",
                )


def sink_settings(step: Step) -> list[str]:
    """The settings that its SINKS line names: `bigquery=TABLE ...`."""
    words = step.entries["SINKS"].value.split() if "SINKS" in step.entries else []
    return [word.partition("=")[2] for word in words]


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
