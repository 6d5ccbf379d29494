"""Stand-ins for the services that steps write to: Cloud Storage, BigQuery, Cloud Tasks, Pub/Sub, PostgreSQL.

A step says in its step.env what it writes to, and which setting names the place there:

    SINKS="storage=ARCHIVE_BUCKET"      of: storage bigquery tasks pubsub postgres, and url

The step's own client library finds the stand-in by the variable that it knows (`STORAGE_EMULATOR_HOST` and so on); a
setting that is still empty gets a name of the laptop's own. A stand-in keeps the one promise that a step leans on (an
object, a job id, a task's name is there once) and notes each call in the receivers' ledger; what it does not know it
answers with 501 or UNIMPLEMENTED. PostgreSQL is the real one, from the package of requirements-laptop.txt. `url` is an
address that is written down and never called.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tools.emulators.clock import Clock
from tools.emulators.receivers import Face, Ledger
from tools.errors import UserError

HTTP = {"storage": "STORAGE_EMULATOR_HOST", "bigquery": "BIGQUERY_EMULATOR_HOST"}
GRPC = {"tasks": "CLOUD_TASKS_EMULATOR_HOST", "pubsub": "PUBSUB_EMULATOR_HOST"}
PLACES = {
    "storage": "laptop",
    "bigquery": "{project}.laptop.rows",
    "tasks": "projects/{project}/locations/{region}/queues/laptop",
    "pubsub": "projects/{project}/topics/laptop",
    "url": "https://laptop.invalid/",
}
KINDS = (*PLACES, "postgres")


class SinksError(UserError):
    """A SINKS line cannot be carried out; the text is one line."""


class Sinks:
    """The stand-ins that the steps of one chain need: started when the first step asks, ended by `stop`."""

    def __init__(self, state: Path, ledger: Ledger, clock: Clock, project: str, region: str) -> None:
        self._state = state
        self._ledger = ledger
        self._clock = clock
        self._project = project
        self._region = region
        self._faces: dict[str, Face] = {}
        self._grpc: str | None = None
        self._postgres: str | None = None
        self._open = ExitStack()

    def stop(self) -> None:
        self._open.close()

    def environment(self, step: str, words: str, url: str, wire: Callable[[str, str], str]) -> dict[str, str]:
        """What a step's function is told. `words`: its SINKS; `url`: of the receivers; `wire` puts a wire before the
        gRPC address of a kind. Raises SinksError.
        """
        told: dict[str, str] = {}
        for word in words.split():
            kind, _, setting = word.partition("=")
            if kind not in KINDS or not setting:
                known = ", ".join(KINDS)
                raise SinksError(
                    f"functions/{step}/step.env: SINKS has {word!r}; write kind=SETTING, kind one of {known}"
                )
            if kind in HTTP:
                self._faces.setdefault(kind, self._face(kind))
                told[HTTP[kind]] = f"{url}/{step}/{kind}"
            elif kind in GRPC:
                told[GRPC[kind]] = wire(kind, self._grpc_address())
            told[setting] = self._place(kind)
        return told

    def face(self, kind: str) -> Face | None:
        """The HTTP stand-in of this kind, if a step has asked for it."""
        return self._faces.get(kind)

    def _place(self, kind: str) -> str:
        if kind == "postgres":
            return self._postgres_url()
        return PLACES[kind].format(project=self._project, region=self._region)

    def _face(self, kind: str) -> Face:
        if kind == "storage":
            from tools.emulators.sinks.storage import Storage

            return Storage(self._state / "storage", self._ledger, self._clock)
        from tools.emulators.sinks.bigquery import BigQuery

        return BigQuery(self._ledger, self._clock)

    def _grpc_address(self) -> str:
        if self._grpc is None:
            from tools.emulators.sinks.grpc_faces import serve

            self._grpc, stop = serve(self._ledger, self._clock)
            self._open.callback(stop)
        return self._grpc

    def _postgres_url(self) -> str:
        if self._postgres is None:
            from tools.emulators.sinks.postgres import start

            self._postgres, stop = start(self._state / "postgres")
            self._open.callback(stop)
        return self._postgres
