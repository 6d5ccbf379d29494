"""Puts saved changes in place while the chain runs: a function with its next request, the workflow at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.emulators.chain import Chain
from tools.errors import UserError

PERIOD = 0.5
"""Seconds between two looks at the files."""

Stamps = dict[Path, int]


@contextmanager
def watching(chain: Chain) -> Iterator[None]:
    """Until the end of the block."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(chain, ended), name="watching", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(chain: Chain, ended: threading.Event) -> None:
    seen = _stamps(chain.project)
    while not ended.wait(PERIOD):
        now = _stamps(chain.project)
        changed = {path for path in seen.keys() | now.keys() if seen.get(path) != now.get(path)}
        seen = now
        _put_in_place(chain, {path.relative_to(chain.project).parts for path in changed})


def _put_in_place(chain: Chain, changed: set[tuple[str, ...]]) -> None:
    for name, service in chain.services.items():
        own = ("proxy",) if name == "proxy" else ("functions", name)
        if any(parts[: len(own)] == own or parts[0] == "exactly_once" for parts in changed):
            service.stop()
            chain.log.add(name, "process.replaced", reason="its source has changed")
    if ("workflows", "main.yaml") in changed:
        try:
            chain.deploy()
            chain.log.add("workflows", "workflow.deployed", reason="its source has changed")
        except UserError as error:
            chain.log.add("workflows", "process.broken", severity="ERROR", message=str(error))
    if any(parts[-1].endswith(".env") for parts in changed):
        reason = "settings have changed: start ./pipeline local again"
        chain.log.add("settings", "settings.changed", severity="WARNING", reason=reason)


def _stamps(project: Path) -> Stamps:
    """When each file of the pipeline was written."""
    found: Stamps = {}
    patterns = ("functions/**/*", "proxy/*.py", "exactly_once/*.py", "workflows/main.yaml", "*.env")
    for pattern in patterns:
        for path in project.glob(pattern):
            if "__pycache__" not in path.parts:
                try:
                    found[path] = path.stat().st_mtime_ns if path.is_file() else 0
                except FileNotFoundError:
                    continue
    return found
