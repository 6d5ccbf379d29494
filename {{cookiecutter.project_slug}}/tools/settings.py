"""The project's settings, typed: settings.env, its overlay for an environment, and each step's step.env.

A settings file is lines of ``KEY=VALUE`` that bash can source as they stand: a value is bare (letters, digits and
``_./:@%+,=-``) or in double quotes, where ``\\"``, ``\\\\``, ``\\$`` and ``\\``` stand for themselves. Anything
that bash would expand, join or run is refused, so that the deploy script and the tools read one and the same value.

``settings.<environment>.env`` lies over settings.env and holds only what differs there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

from tools.errors import UserError

SETTINGS = "settings.env"
STEP_SETTINGS = "step.env"

_KEY = re.compile(r"[A-Z][A-Z0-9_]*")
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")
_QUOTED = re.compile(r'"((?:[^"\\$`]|\\["\\$`])*)"')
_STEP = re.compile(r"[a-z][a-z0-9_]{0,30}")
_SECRET = re.compile(r"([A-Z][A-Z0-9_]*)=([A-Za-z0-9_-]{1,255}):(latest|[1-9][0-9]*)")
_ROLE = re.compile(r"(projects/[a-z0-9-]+/|organizations/[0-9]+/)?roles/[A-Za-z0-9_.]+")

RESERVED = frozenset(
    [
        "SCOPE",
        "SCOPES",
        "GOOGLE_CLOUD_PROJECT",
        "FIRESTORE_DATABASE",
        "STEP",
        "STEP_TIMEOUT",
        "STEP_LEASE",
        "MAX_ATTEMPTS",
        "WORKFLOW",
        "FIRESTORE_EMULATOR_HOST",
        "WORKFLOWS_EMULATOR_HOST",
        "PORT",
        "PATH",
        "HOME",
        "PYTHONPATH",
        "K_SERVICE",
        "K_REVISION",
        "K_CONFIGURATION",
        "FUNCTION_TARGET",
        "FUNCTION_SIGNATURE_TYPE",
    ]
)
"""Names in a function's environment that a setting of one's own must not take."""


class SettingsError(UserError):
    """A settings file cannot be used; the text is one line with file, line, what is wrong and what to write."""


@dataclass(frozen=True)
class Entry:
    """One value and where it stands."""

    value: str
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Secret:
    """`name` in the function's environment is `version` of the secret `secret` in Secret Manager."""

    name: str
    secret: str
    version: str


@dataclass(frozen=True)
class Step:
    """One function of the pipeline, from functions/<name>/step.env. Times are seconds."""

    name: str
    timeout: int
    lease: int
    memory: str
    cpu: str
    threads: int
    max_instances: int
    max_attempts: int
    roles: tuple[str, ...]
    secrets: tuple[Secret, ...]
    settings: tuple[str, ...]
    receivers: tuple[str, ...]
    folder: Path
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Settings:
    """All settings of one environment. Times are seconds, retention is days."""

    root: Path
    pipeline: str
    project: str
    region: str
    environment: str
    database: str
    schedule: str
    time_zone: str
    job: str
    on_overlap: str
    retention_days: int
    attempt_deadline: int
    proxy_timeout: int
    proxy_lease: int
    min_backoff: int
    max_backoff: int
    max_doublings: int
    max_retry_attempts: int
    max_retry_duration: int
    step_accounts: str
    notification_channel: str
    gaps_schedule: str
    """"" if nothing looks for gaps by itself."""
    github_repository: str
    steps: Mapping[str, Step]
    entries: Mapping[str, Entry]

    @property
    def scope(self) -> str:
        """Part of every run id: two projects, regions or environments never share a run."""
        return f"{self.project}/{self.region}/{self.environment}"

    @property
    def workflow(self) -> str:
        """The workflow's id."""
        return self.pipeline

    @property
    def workflow_name(self) -> str:
        """The workflow's full resource name."""
        return f"projects/{self.project}/locations/{self.region}/workflows/{self.workflow}"

    @property
    def proxy_service(self) -> str:
        return service_name(self.pipeline, "proxy")

    def service(self, step: str) -> str:
        """Name of the Cloud Run service of `step`."""
        return service_name(self.pipeline, step)

    def value(self, key: str) -> str:
        """Value of any setting of settings.env; "" if it is not there."""
        entry = self.entries.get(key)
        return entry.value if entry else ""

    def receivers(self) -> dict[str, list[str]]:
        """Setting with the URL of an outside receiver -> the steps that write to it."""
        found: dict[str, list[str]] = {}
        for step in self.steps.values():
            for name in step.receivers:
                found.setdefault(name, []).append(step.name)
        return found

    def proxy_environment(self) -> dict[str, str]:
        """Environment of the deployed proxy."""
        return {
            **self._shared_environment(),
            "WORKFLOW": self.workflow_name,
            "PROXY_LEASE": str(self.proxy_lease),
            "PROXY_TIMEOUT": str(self.proxy_timeout),
            "JOB": self.job,
            "ON_OVERLAP": self.on_overlap,
            "SCHEDULE": self.schedule,
        }

    def step_environment(self, step: str, urls: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment of the deployed function of `step`, without its secrets.

        `urls` takes the place of the receivers' own: what the laptop's stand-ins are reached at.
        """
        of = self.steps[step]
        return {
            **self._shared_environment(),
            "STEP": of.name,
            "STEP_TIMEOUT": str(of.timeout),
            "STEP_LEASE": str(of.lease),
            "MAX_ATTEMPTS": str(of.max_attempts),
            **{name: self.value(name) for name in of.settings},
            **{name: (urls or {}).get(name, self.value(name)) for name in of.receivers},
        }

    def _shared_environment(self) -> dict[str, str]:
        return {
            "PIPELINE": self.pipeline,
            "SCOPE": self.scope,
            "GOOGLE_CLOUD_PROJECT": self.project,
            "FIRESTORE_DATABASE": self.database,
            "RETENTION_DAYS": str(self.retention_days),
            "TIME_ZONE": self.time_zone,
        }


def service_name(pipeline: str, part: str) -> str:
    """Name of the Cloud Run service of a step or of the proxy: letters, digits and dashes only."""
    return f"{pipeline}-{part.replace('_', '-')}"


def workflow_environment(urls: Mapping[str, str]) -> dict[str, str]:
    """The workflow's variables: `urls` maps each step to the root URL of its service.

    Raises `SettingsError` beyond the 4 KiB that Workflows gives one variable.
    """
    text = json.dumps(dict(sorted(urls.items())), separators=(",", ":"))
    if len(text.encode()) > 4096:
        raise SettingsError(f"the URLs of {len(urls)} steps take {len(text)} bytes; a workflow's variable holds 4096")
    return {"STEP_URLS": text}


def load(root: Path, environment: str | None = None) -> Settings:
    """Read the settings of the project in `root`, for `environment` or for the one that settings.env names.

    Raises `SettingsError` for the first thing that is wrong.
    """
    entries = read(root / SETTINGS, root)
    named = entries.get("ENVIRONMENT", Entry("prod", SETTINGS, 0))
    environment = environment or named.value
    overlay = root / f"settings.{environment}.env"
    if overlay.exists():
        entries = {**entries, **read(overlay, root)}
    elif environment != named.value:
        raise SettingsError(
            f"{overlay.name}: not found; write what differs in {environment}: PROJECT, or PIPELINE and DATABASE"
        )
    entries["ENVIRONMENT"] = Entry(environment, named.file, named.line)
    return _settings(root, _Reader(entries, SETTINGS))


def read(file: Path, root: Path) -> dict[str, Entry]:
    """The entries of one settings file, which errors name relative to `root`.

    Raises `SettingsError` for a missing file, a line that bash would read differently, and a key given twice.
    """
    name = file.relative_to(root).as_posix()
    try:
        text = file.read_bytes().decode()
    except FileNotFoundError:
        raise SettingsError(f"{name}: not found") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{name}: not UTF-8") from None
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(" \t") or line.startswith("#"):
            continue
        try:
            key, value = _pair(line)
        except ValueError as error:
            raise SettingsError(f"{name}:{number}: {error}") from None
        if key in entries:
            raise SettingsError(f"{name}:{number}: {key} is given twice; first in line {entries[key].line}")
        entries[key] = Entry(value, name, number)
    return entries


def quoted(value: str) -> str:
    """`value` as it is written in a settings file. Raises ValueError for one that no line can hold."""
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise ValueError("a value is one line without control characters")
    return value if _BARE.fullmatch(value) else '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def _pair(line: str) -> tuple[str, str]:
    key, sign, text = line.partition("=")
    if not sign or not _KEY.fullmatch(key):
        raise ValueError("write KEY=VALUE, the key in capitals, without spaces around the equals sign")
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ValueError(f"{key} has a control character (a tab, or the line ends of Windows)")
    text = text.rstrip(" ")
    if match := _QUOTED.fullmatch(text):
        return key, re.sub(r"\\(.)", r"\1", match[1])
    if not _BARE.fullmatch(text):
        raise ValueError(
            f'{key}: put the value in double quotes, with \\" \\\\ \\$ \\` for those characters; '
            "a comment stands on a line of its own"
        )
    return key, text


class _Reader:
    """Takes typed values out of entries; an error names the place."""

    def __init__(self, entries: Mapping[str, Entry], file: str) -> None:
        self.entries = entries
        self._file = file

    def error(self, key: str, text: str) -> SettingsError:
        entry = self.entries.get(key)
        return SettingsError(f"{entry.where if entry else self._file}: {key} {text}")

    def text(self, key: str, default: str | None = None, form: str = "", words: str = "") -> str:
        """Value of `key`, which is required if there is no default and must match `form`, told in `words`."""
        value = self.entries[key].value if key in self.entries else ""
        if not value:
            if default is None:
                raise self.error(key, "is missing; give it a value")
            value = default
        if value and form and not re.fullmatch(form, value):
            raise self.error(key, f"is {value!r}; write {words}")
        return value

    def number(self, key: str, default: int, low: int, high: int) -> int:
        value = self.text(key, str(default))
        if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
            raise self.error(key, f"is {value!r}; write a whole number from {low} to {high}")
        return int(value)

    def words(self, key: str) -> Iterator[str]:
        """The words of a list, each at most once."""
        seen: set[str] = set()
        for word in self.text(key, "").split():
            if word in seen:
                raise self.error(key, f"names {word} twice")
            seen.add(word)
            yield word


def _settings(root: Path, reader: _Reader) -> Settings:
    pipeline = reader.text(
        "PIPELINE", None, r"[a-z](-?[a-z0-9]){3,19}", "4 to 20 lower-case letters, digits and single dashes"
    )
    zone = reader.text("TIME_ZONE", "Etc/UTC")
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError; "Europe" is a folder
        raise reader.error("TIME_ZONE", f"is {zone!r}; write a zone such as Europe/Berlin") from None
    return Settings(
        root=root,
        pipeline=pipeline,
        project=reader.text("PROJECT", None, r"[a-z][a-z0-9-]{4,28}[a-z0-9]", "a Google Cloud project id"),
        region=reader.text("REGION", None, r"[a-z]+(-[a-z]+)+[0-9]+", "a region such as europe-west1"),
        environment=reader.text("ENVIRONMENT", "prod", r"[a-z][a-z0-9-]{0,19}", "a short lower-case name"),
        database=reader.text("DATABASE", pipeline, r"[a-z](-?[a-z0-9]){3,62}", "4 to 63 characters of a-z, 0-9 and -"),
        schedule=reader.text("SCHEDULE", None, r"\S+( \S+){4}", "five cron fields with single spaces, in quotes"),
        time_zone=zone,
        job=reader.text("JOB", pipeline, r"[A-Za-z0-9_-]{1,500}", "letters, digits, _ and -"),
        on_overlap=reader.text("ON_OVERLAP", "allow", "allow|skip|queue", "allow, skip or queue"),
        retention_days=reader.number("RETENTION_DAYS", 90, 1, 3650),
        attempt_deadline=reader.number("ATTEMPT_DEADLINE", 90, 15, 1800),
        proxy_timeout=reader.number("PROXY_TIMEOUT", 60, 1, 3600),
        proxy_lease=reader.number("PROXY_LEASE", 120, 1, 7200),
        min_backoff=reader.number("MIN_BACKOFF", 10, 1, 3600),
        max_backoff=reader.number("MAX_BACKOFF", 180, 1, 3600),
        max_doublings=reader.number("MAX_DOUBLINGS", 4, 0, 16),
        max_retry_attempts=reader.number("MAX_RETRY_ATTEMPTS", 5, 0, 5),
        max_retry_duration=reader.number("MAX_RETRY_DURATION", 3600, 0, 604_800),
        step_accounts=reader.text("STEP_ACCOUNTS", "each", "each|shared", "each or shared"),
        notification_channel=reader.text("NOTIFICATION_CHANNEL", ""),
        gaps_schedule=reader.text(
            "GAPS_SCHEDULE", "", r"\S+( \S+){4}", "five cron fields with single spaces, in quotes"
        ),
        github_repository=reader.text("GITHUB_REPOSITORY", "", r"[\w.-]+/[\w.-]+", "owner/name"),
        steps=dict(_steps(root, reader)),
        entries=reader.entries,
    )


def _steps(root: Path, settings: _Reader) -> Iterator[tuple[str, Step]]:
    """Every folder of functions/ that holds a main.py, in order of name."""
    for main in sorted((root / "functions").glob("*/main.py")):
        folder = main.parent
        where = f"functions/{folder.name}"
        if not _STEP.fullmatch(folder.name):
            raise SettingsError(f"{where}: a step's name is up to 31 lower-case letters, digits and _")
        if folder.name == "proxy":
            raise SettingsError(f"{where}: proxy is the name of the proxy's own service; take another")
        file = folder / STEP_SETTINGS
        yield folder.name, _step(folder, _Reader(read(file, root), f"{where}/{STEP_SETTINGS}"), settings)


def _step(folder: Path, reader: _Reader, settings: _Reader) -> Step:
    secrets = []
    for word in reader.words("SECRETS"):
        match = _SECRET.fullmatch(word)
        if not match:
            raise reader.error("SECRETS", f"has {word!r}; write NAME=secret:version")
        secrets.append(Secret(*match.groups()))
    roles = tuple(reader.words("ROLES"))
    for role in roles:
        if not _ROLE.fullmatch(role):
            raise reader.error("ROLES", f"has {role!r}; write roles such as roles/bigquery.jobUser")
    passed = {key: tuple(reader.words(key)) for key in ("SETTINGS", "RECEIVERS")}
    for key, names in passed.items():
        for name in names:
            if name not in settings.entries:
                raise reader.error(key, f"names {name}, which {SETTINGS} does not have; add {name}= there")
    known: set[str] = set()
    for key, name in [*((k, n) for k, names in passed.items() for n in names), *(("SECRETS", s.name) for s in secrets)]:
        if name in RESERVED:
            raise reader.error(key, f"names {name}, which the function gets anyway; take another name")
        if name in known:
            raise reader.error(key, f"names {name}, which stands in another list of this file")
        known.add(name)
    return Step(
        name=folder.name,
        timeout=reader.number("TIMEOUT", 300, 1, 1800),
        lease=reader.number("LEASE", 330, 1, 3600),
        memory=reader.text("MEMORY", "512Mi", r"[1-9][0-9]*[MG]i", "an amount such as 512Mi"),
        cpu=reader.text("CPU", "1", r"0\.[0-9]+|[1-8]", "a number such as 1"),
        threads=reader.number("THREADS", 8, 1, 1000),
        max_instances=reader.number("MAX_INSTANCES", 10, 1, 1000),
        max_attempts=reader.number("MAX_ATTEMPTS", 10, 1, 1000),
        roles=roles,
        secrets=tuple(secrets),
        settings=passed["SETTINGS"],
        receivers=passed["RECEIVERS"],
        folder=folder,
        entries=reader.entries,
    )
