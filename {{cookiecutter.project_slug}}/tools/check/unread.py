"""Settings that nothing reads: most often a slip of the pen, so that the default counts and nobody sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields
from difflib import get_close_matches

from tools.check.findings import Finding, Project
from tools.check.receivers import sink_settings
from tools.settings import Entry, Settings, Step

LAPTOP_KEYS = frozenset({"CONNECTORS"})
"""Keys of settings.env that only the laptop reads."""
NO_KEYS = frozenset({"ROOT", "ENTRIES", "FOLDER", "NAME", "STEPS"})
"""Fields of `Settings` and `Step` that are no key of their files."""


def unread(project: Project) -> Iterator[Finding]:
    """Every key of settings.env, of what lies over it and of each step.env that no part of the pipeline reads."""
    settings = project.settings
    of_settings = _keys(Settings) | LAPTOP_KEYS
    of_step = _keys(Step) | {"SINKS"}
    known = set(of_settings)
    for step in settings.steps.values():
        known |= {*step.settings, *step.receivers, *(secret.name for secret in step.secrets), *sink_settings(step)}
        yield from _unread(step.entries, of_step, of_settings, "settings.env")
    yield from _unread(settings.entries, known, of_step, "the step's step.env")


def _keys(kind: type[Settings] | type[Step]) -> set[str]:
    return {field.name.upper() for field in fields(kind)} - NO_KEYS


def _unread(entries: Mapping[str, Entry], known: Set[str], elsewhere: Set[str], home: str) -> Iterator[Finding]:
    """Findings for what is not in `known`; a key that is read from another file, `home`, belongs there."""
    for key, entry in entries.items():
        if key in known:
            continue
        if key in elsewhere:
            change = f"Move it to {home}"
        elif near := get_close_matches(key, sorted(known), 1):
            change = f"Did you mean {near[0]}? If a function needs {key}, name it in SETTINGS of its step.env"
        else:
            change = f"Remove it; if a function needs {key}, name it in SETTINGS of its step.env"
        yield Finding("warning", entry.file, entry.line, f"nothing reads {key}: its value has no effect", change)
