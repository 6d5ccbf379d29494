"""What requirements bring with them: the modules of the distributions that they name, and of those that these need.

What is looked at is what is installed here, which `./pipeline` has set up from the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

USUAL = {
    "beautifulsoup4": "bs4",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "protobuf": "google.protobuf",
    "pyjwt": "jwt",
    "python-dateutil": "dateutil",
    "python-dotenv": "dotenv",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
}
"""Modules that are not called as their distribution is, for distributions that are not installed here."""


@dataclass(frozen=True)
class Brought:
    """`modules`: dotted names; `namespaces`: what lies above them; `unknown`: requirements not to be looked at here."""

    modules: frozenset[str]
    namespaces: frozenset[str]
    unknown: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Whether `name`, a module or a name in one, is brought; for what could not be looked at, whether it may be."""
        parts = name.split(".")
        above = {".".join(parts[: count + 1]) for count in range(len(parts))}
        return (
            name in self.namespaces or not above.isdisjoint(self.modules) or any(_usual(n, name) for n in self.unknown)
        )


@cache
def brought(lines: tuple[str, ...]) -> Brought:
    """What the lines of requirements files bring; distributions that are not installed are `unknown`, by their name."""
    modules: set[str] = set()
    unknown: list[str] = []
    waiting: list[tuple[Requirement, frozenset[str]]] = []
    for line in filter(None, (line.partition(" #")[0].strip() for line in lines)):
        if line.startswith("#"):
            continue
        try:
            waiting.append((Requirement(line), frozenset()))
        except InvalidRequirement:
            unknown.append(line)
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted, extras = waiting.pop()
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        name, inner = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (name, inner) in seen:
            continue
        seen.add((name, inner))
        there = _installed(name)
        if there is None:
            unknown.append(name)
            continue
        modules |= there.modules
        waiting.extend((requirement, inner) for requirement in there.requires)
    return Brought(frozenset(modules), frozenset(_above(modules)), tuple(unknown))


def distribution_of(name: str) -> str | None:
    """An installed distribution that has the module `name`, as a pinned requirement."""
    parts = name.split(".")
    above = {".".join(parts[: count + 1]) for count in range(len(parts))}
    for found in distributions():
        if not above.isdisjoint(_modules(found) or ()):
            return f"{found.metadata['Name']}=={found.version}"
    return None


@dataclass(frozen=True)
class _Installed:
    modules: frozenset[str]
    requires: tuple[Requirement, ...]


@cache
def _installed(name: str) -> _Installed | None:
    """None if it is not installed, or without a list of its files."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    modules = _modules(found)
    return None if modules is None else _Installed(modules, tuple(map(Requirement, found.requires or ())))


def _modules(found: Distribution) -> frozenset[str] | None:
    record = found.read_text("RECORD")
    return None if record is None else frozenset(_in_record(record))


def _in_record(record: str) -> Iterator[str]:
    """The modules among the files of a RECORD, whose lines are path,hash,size."""
    for line in record.splitlines():
        *folders, file = line.partition(",")[0].split("/")
        stem, _, ending = file.partition(".")
        if ending == "py" or ending.endswith(("so", "pyd")):
            parts = folders if stem == "__init__" else [*folders, stem]
            if parts and all(part.isidentifier() for part in parts):
                yield ".".join(parts)


def _above(modules: set[str]) -> Iterator[str]:
    for module in modules:
        while module := module.rpartition(".")[0]:
            yield module


def _usual(unknown: str, name: str) -> bool:
    """Whether a distribution called `unknown` usually has `name`: google-cloud-tasks has google.cloud.tasks_v2."""
    if unknown.startswith("google-"):
        return name.startswith(unknown.replace("-", "."))
    return name.partition(".")[0] == unknown.replace("-", "_") or f"{name}.".startswith(f"{USUAL.get(unknown, '-')}.")
