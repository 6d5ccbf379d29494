"""The runtime's own code, as an operator uses it: on the laptop's chain or in the cloud, never through the proxy."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from exactly_once.firestore import FirestoreStore
from exactly_once.launching import Launcher
from exactly_once.log import Log
from exactly_once.operate import Operator
from exactly_once.protocol import Protocol
from exactly_once.starting import WorkflowsStarter
from exactly_once.store import Host
from tools.database import connect
from tools.settings import Settings


@dataclass(frozen=True)
class Addresses:
    """host:port of the emulators; None is the cloud."""

    firestore: str | None = None
    workflows: str | None = None


@dataclass(frozen=True)
class Reach:
    """What an operator acts with."""

    launcher: Launcher
    operator: Operator
    starter: WorkflowsStarter
    log: Log


def events_to(record: Callable[[dict[str, Any]], None]) -> Log:
    """A log whose lines become events of `operator`."""
    return Log(lambda line: record({**json.loads(line), "service": "operator"}))


@contextmanager
def reach(settings: Settings, addresses: Addresses, log: Log, who: str | None = None) -> Iterator[Reach]:
    """Closed at the end. `who` is kept in the records that are changed; without it, the login name."""
    environ: Mapping[str, str] = {"WORKFLOWS_EMULATOR_HOST": addresses.workflows} if addresses.workflows else {}
    with connect(settings.project, settings.database, addresses.firestore) as client:
        starter = WorkflowsStarter(settings.workflow_name, environ)
        try:
            protocol = Protocol(FirestoreStore(client), Host())
            retention = timedelta(days=settings.retention_days)
            yield Reach(
                Launcher(settings.pipeline, protocol, starter, settings.proxy_lease, retention),
                Operator(settings.pipeline, who or getpass.getuser(), protocol, retention, log),
                starter,
                log,
            )
        finally:
            starter.close()
