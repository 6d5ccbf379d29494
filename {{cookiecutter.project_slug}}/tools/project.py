"""Where the project's parts are, and whether its chain runs on this machine."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
"""The project's folder."""

STATE = ROOT / ".local"
"""What the laptop's chain keeps."""


@dataclass(frozen=True)
class Running:
    """Where a running chain is: addresses are host:port, URLs have no slash at the end."""

    pid: int
    firestore: str
    workflows: str
    workflows_url: str
    services: dict[str, str]
    events: str
    """The file of its events, one JSON object a line."""


class StateInUseError(UserError):
    """Another process has this state folder."""


@contextmanager
def owned(state: Path) -> Iterator[None]:
    """This process alone has the state folder, until the end of the block or of the process, however it ends."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateInUseError(f"a chain already runs on {state}: stop it first (Ctrl-C where it runs)") from None
        yield


def announce(state: Path, running: Running) -> None:
    """Write where the chain is, in one piece; whoever owns the state calls it."""
    draft = state / "chain.json.new"
    draft.write_text(json.dumps(asdict(running), indent=2))
    draft.replace(state / "chain.json")


def withdraw(state: Path) -> None:
    (state / "chain.json").unlink(missing_ok=True)


def running(state: Path) -> Running | None:
    """The chain that runs on this state folder; None if there is none, or the one that was there has died."""
    try:
        with owned(state):
            return None
    except StateInUseError:
        try:
            return Running(**json.loads((state / "chain.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None  # it starts or stops at this moment
