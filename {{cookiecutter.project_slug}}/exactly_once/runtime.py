"""What one process of a function works with: made once, at its first request, and passed on from there."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from google.auth.exceptions import GoogleAuthError
from google.cloud import firestore

from .errors import ConfigurationError
from .firestore import FirestoreStore
from .log import Log, traceback_text
from .protocol import Protocol
from .settings import Settings, StepSettings, step_settings
from .store import Host, Store


@dataclass(frozen=True)
class Runtime:
    """Everything a step's code reaches the world by."""

    settings: StepSettings
    store: Store
    host: Host
    log: Log
    on_laptop: bool = False

    @property
    def protocol(self) -> Protocol:
        return Protocol(self.store, self.host)

    def expiry(self) -> datetime:
        """When TTL may delete a record that is written now."""
        return self.host.now() + self.settings.retention

    def trace_text(self, error: BaseException) -> str:
        return traceback_text(error, whole=self.on_laptop)


_lock = threading.Lock()
_current: Runtime | None = None


def current() -> Runtime:
    """This process's runtime, from its environment. Raises ConfigurationError."""
    global _current
    with _lock:  # not at import: a client made before gunicorn forks its worker would not work there
        if _current is None:
            settings = step_settings(os.environ)
            store = FirestoreStore(client(settings))
            _current = Runtime(settings, store, Host(), Log(), on_laptop(os.environ))
        return _current


def database() -> firestore.Client:
    """The Firestore client of this process, on the database that holds the records: for the documents of a body.

    Not for use at import. Raises ConfigurationError.
    """
    store = current().store
    assert isinstance(store, FirestoreStore)
    return store.client


def client(settings: Settings) -> firestore.Client:
    """Raises ConfigurationError when there are no credentials."""
    try:
        return firestore.Client(project=settings.project, database=settings.database)
    except GoogleAuthError as error:
        raise ConfigurationError(f"no credentials for Firestore: {error}") from error


def on_laptop(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("FIRESTORE_EMULATOR_HOST"))
