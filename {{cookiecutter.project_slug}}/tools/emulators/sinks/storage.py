"""Cloud Storage's JSON API, as far as writing an object once and looking at it needs: see the package for the rest.

    POST /upload/storage/v1/b/BUCKET/o?uploadType=multipart|media&ifGenerationMatch=0
    GET  /storage/v1/b/BUCKET/o/OBJECT[?alt=media]

Every bucket is there. Objects lie as files below the state folder, so they can be looked at and outlast a restart.
"""

from __future__ import annotations

import base64
import hashlib
import json
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tools.emulators.clock import Clock
from tools.emulators.receivers import Ledger

NAME = "storage"


class Storage:
    """One for all buckets."""

    def __init__(self, folder: Path, ledger: Ledger, clock: Clock) -> None:
        self._folder = folder
        self._ledger = ledger
        self._clock = clock

    def answer(self, step: str, request: Request, path: str, body: bytes) -> Response:
        parts = path.strip("/").split("/", 6)
        match request.method, parts:
            case "POST", ["upload", "storage", "v1", "b", bucket, "o"]:
                return self._insert(step, request, bucket, body)
            case "GET", ["storage" | "download", *_]:
                bucket, _, name = path.partition("/b/")[2].partition("/o/")
                return self._get(bucket, unquote(name), request.query_params.get("alt") == "media")
        return _error(501, f"the stand-in for Cloud Storage does not know {request.method} {path}")

    def _insert(self, step: str, request: Request, bucket: str, body: bytes) -> Response:
        query = request.query_params
        match query.get("uploadType"):
            case "media":
                about, data = {"name": query.get("name", "")}, body
            case "multipart":
                about, data = _multipart(request.headers.get("content-type", ""), body)
            case other:
                return _error(501, f"the stand-in for Cloud Storage does not know uploadType={other}")
        if set(query) & {"ifGenerationNotMatch", "ifMetagenerationMatch", "ifMetagenerationNotMatch"}:
            return _error(501, "the stand-in for Cloud Storage knows ifGenerationMatch only")
        name = str(about.get("name", ""))
        file = self._file(bucket, name)
        wanted = query.get("ifGenerationMatch")
        met = wanted is None or int(wanted) == self._generation(bucket, name)
        if met:
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_name(file.name + ".new")
            draft.write_bytes(data)
            draft.replace(file)
        self._ledger.record(self._clock.now(), NAME, step, "POST", f"/{bucket}/{name}", f"{bucket}/{name}", data)
        return (
            self._get(bucket, name, False) if met else _error(412, "At least one of the pre-conditions did not hold.")
        )

    def _get(self, bucket: str, name: str, media: bool) -> Response:
        file, generation = self._file(bucket, name), self._generation(bucket, name)
        if not generation:
            return _error(404, f"No such object: {bucket}/{name}")
        data = file.read_bytes()
        if media:
            return Response(data, media_type="application/octet-stream")
        return JSONResponse(
            {
                "kind": "storage#object",
                "id": f"{bucket}/{name}/{generation}",
                "name": name,
                "bucket": bucket,
                "generation": str(generation),
                "metageneration": "1",
                "size": str(len(data)),
                "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
                "crc32c": base64.b64encode(crc32c(data).to_bytes(4, "big")).decode(),
            }
        )

    def _generation(self, bucket: str, name: str) -> int:
        """0 where nothing is, as the precondition has it. The ledger knows what is there: it may have been cleared."""
        file = self._file(bucket, name)
        known = file.exists() and self._ledger.find(NAME, f"{bucket}/{name}") is not None
        return file.stat().st_mtime_ns // 1000 if known else 0

    def _file(self, bucket: str, name: str) -> Path:
        return self._folder / quote(bucket, safe="") / quote(name, safe="")


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, by the definition: for what a test writes."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def _multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    about, data = message.iter_parts()
    text = about.get_payload(decode=True)
    boundary = str(message.get_boundary()).encode()
    # The parser may touch line ends in text: the data is cut out as the bytes it is.
    raw = body.split(b"--" + boundary)[2].split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n")
    del data
    return json.loads(text if isinstance(text, bytes) else b"{}"), raw


def _error(status: int, message: str) -> Response:
    reason = {404: "notFound", 412: "conditionNotMet", 501: "notImplemented"}[status]
    error = {"code": status, "message": message, "errors": [{"message": message, "reason": reason}]}
    return JSONResponse({"error": error}, status_code=status)
