"""What a check has to say."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tools.emulators.workflows.model import Definition
from tools.settings import Entry, Settings

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """`what` would go wrong, in words; `change` says what to do about it. An error keeps deploy.sh from starting."""

    level: Level
    file: str
    line: int
    what: str
    change: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.level}: {self.what}. {self.change}."

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Project:
    """What is looked at; `workflow` is None if it does not even parse."""

    settings: Settings
    workflow: Definition | None

    @property
    def root(self) -> Path:
        return self.settings.root

    def place(self, key: str, step: str | None = None) -> tuple[str, int]:
        """Where the setting `key` stands, or would."""
        entries = self.settings.steps[step].entries if step else self.settings.entries
        entry: Entry | None = entries.get(key)
        if entry is not None:
            return entry.file, entry.line
        return (f"functions/{step}/step.env" if step else "settings.env"), 1
