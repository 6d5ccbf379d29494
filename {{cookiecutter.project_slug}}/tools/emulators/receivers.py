"""Stand-ins for the outside systems that steps write to: a payment API, a webhook.

One rule for all, the one that the guarantee of an external step leans on: an `Idempotency-Key` takes effect once; the
same key with the same body gets the same answer again, with another body it is refused. A call without a key takes
effect each time. The ledger is a file of JSON lines, written before the answer: it survives a restart.

    POST|PUT|PATCH|DELETE  <url>[/any/path]   an effect
    GET                    <url>/effects/KEY  the answer that the key got, or 404: for a step's `verify`
    GET                    <url>              the ledger of this receiver

Below a step's own address lie the stand-ins of `sinks`, too: `/<step>/storage/...`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tools.emulators.clock import Clock
from tools.emulators.events import EventLog
from tools.emulators.faults import Call
from tools.emulators.http_faults import HttpFaults

BODY_LIMIT = 64 * 1024
"""Bytes up to which the ledger keeps a JSON body."""

Row = dict[str, Any]


class Ledger:
    """What the receivers were asked, in order.

    A row: ``time`` (RFC 3339), ``receiver`` (the setting's name), ``step``, ``method``, ``path``, ``key`` (or None),
    ``sha256`` of the body, ``outcome`` (``first``: it took effect; ``replayed``; ``other_body``: refused), ``status``,
    ``id`` of the effect, and ``body`` where it is JSON.
    """

    def __init__(self, file: Path) -> None:
        self._path = file
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._first: dict[tuple[str, str], Row] = {}
        if file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                if line.endswith("}"):  # a line torn by a crash was never answered
                    self._note(json.loads(line))
        self._file = file.open("a", encoding="utf-8")

    def rows(self) -> list[Row]:
        with self._lock:
            return [dict(row) for row in self._rows]

    def find(self, receiver: str, key: str) -> Row | None:
        with self._lock:
            return self._first.get((receiver, key))

    def record(self, now: float, receiver: str, step: str, method: str, path: str, key: str | None, body: bytes) -> Row:
        """Decide and write down one call; the row says what came of it."""
        digest = hashlib.sha256(body).hexdigest()
        with self._lock:
            first = self._first.get((receiver, key)) if key is not None else None
            outcome = "first" if first is None else "replayed" if first["sha256"] == digest else "other_body"
            effect = key if key is not None else f"no key, call {len(self._rows)}"
            row = {
                "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "receiver": receiver,
                "step": step,
                "method": method,
                "path": path,
                "key": key,
                "sha256": digest,
                "outcome": outcome,
                "status": 422 if outcome == "other_body" else 200,
                "id": hashlib.sha256(f"{receiver} {effect}".encode()).hexdigest()[:24],
                "body": _json(body),
            }
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._file.flush()
            self._note(row)
            return row

    def clear(self) -> None:
        with self._lock:
            self._rows.clear()
            self._first.clear()
            self._file.truncate(0)

    def close(self) -> None:
        self._file.close()

    def _note(self, row: Row) -> None:
        self._rows.append(row)
        if row["outcome"] == "first" and row["key"] is not None:
            self._first[row["receiver"], row["key"]] = row


class Face(Protocol):
    """A stand-in for a service with an HTTP API of its own (see `sinks`). `path` is as it came, still quoted."""

    def answer(self, step: str, request: Request, path: str, body: bytes) -> Response: ...


class Receivers:
    """Serves every receiver of every step on one port: `/<step>/<SETTING>`. Faults: hop `<step>-><SETTING>`."""

    def __init__(
        self,
        ledger: Ledger,
        faults: HttpFaults,
        clock: Clock,
        log: EventLog,
        known: Mapping[str, frozenset[str]],
        face: Callable[[str], Face | None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._faults = faults
        self._clock = clock
        self._log = log
        self._known = known
        self._face = face

    def ledger(self) -> list[Row]:
        return self._ledger.rows()

    def clear(self) -> None:
        self._ledger.clear()

    async def part(self, request: Request) -> Response | None:
        _, step, receiver, path = (request.url.path + "///").split("/", 3)
        path = "/" + path.strip("/")
        face = self._face(receiver)
        if face is None and receiver not in self._known.get(step, ()):
            return _problem(404, "unknown", f"no receiver {step}/{receiver} here")
        body = await request.body()

        async def deliver() -> Response:
            if face is not None:
                raw = request.scope["raw_path"].decode("ascii").removeprefix(f"/{step}/{receiver}")
                return face.answer(step, request, raw, body)
            if request.method in ("GET", "HEAD"):
                return self._look(receiver, path)
            return self._effect(request, step, receiver, path, body)

        return await self._faults.carry(request, Call(step, receiver, request.method, body), deliver)

    def _look(self, receiver: str, path: str) -> Response:
        if path == "/":
            return JSONResponse([row for row in self._ledger.rows() if row["receiver"] == receiver])
        row = self._ledger.find(receiver, path.removeprefix("/effects/"))
        return _answer(row) if row else _problem(404, "not_found", "no effect with this key")

    def _effect(self, request: Request, step: str, receiver: str, path: str, body: bytes) -> Response:
        key = request.headers.get("idempotency-key")
        row = self._ledger.record(self._clock.now(), receiver, step, request.method, path, key, body)
        self._log.add(receiver, f"receiver.{row['outcome']}", step=step, key=key)
        if row["outcome"] == "other_body":
            return _problem(422, "other_body", "this Idempotency-Key came with another body before")
        response = _answer(row)
        if row["outcome"] == "replayed":
            response.headers["Idempotent-Replayed"] = "true"
        return response


def _answer(row: Row) -> Response:
    return JSONResponse({"id": row["id"], "status": "succeeded", "idempotency_key": row["key"]})


def _problem(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body) if len(body) <= BODY_LIMIT else None
    except ValueError:
        return None
