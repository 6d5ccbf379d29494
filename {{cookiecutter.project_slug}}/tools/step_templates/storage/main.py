"""Writes an object to Cloud Storage, once: with the precondition that nothing of its name is there.

The name is made of the key, so nobody else writes it. When the precondition fails, somebody of ours was here before:
the checksum says whether it is this very content.

Input: any JSON. Result: ``{"object": name, "generation": number as text}``.
"""

from __future__ import annotations

import base64
import json
import os
from functools import cache
from typing import Any

import google_crc32c
from google.api_core.exceptions import (
    BadRequest,
    Forbidden,
    NotFound,
    PreconditionFailed,
    TooManyRequests,
    Unauthorized,
)
from google.cloud import storage

from exactly_once import Permanent, Retry, Run, step

SECONDS = 30
"""For one call; far below the lease."""


@cache
def client() -> storage.Client:
    return storage.Client(project=os.environ["GOOGLE_CLOUD_PROJECT"])


@step(on_unknown="retry")
def main(run: Run, payload: Any) -> dict[str, str]:
    """Raises Permanent if another content stands under the key's name."""
    place = bucket()
    blob = client().bucket(place).blob(name(run))
    data = content(run, payload)
    try:
        blob.upload_from_string(data, "application/json", if_generation_match=0, timeout=SECONDS, retry=None)
    except PreconditionFailed:
        blob.reload(timeout=SECONDS)
        if blob.crc32c != checksum(data) or blob.size != len(data):
            raise Permanent(f"gs://{place}/{blob.name} is there with another content") from None
    except TooManyRequests as error:
        raise Retry(f"Cloud Storage asks for patience: {error.message}") from error
    except (BadRequest, Unauthorized, Forbidden, NotFound) as error:
        raise Permanent(f"Cloud Storage refuses: {error.message}") from error
    return {"object": blob.name, "generation": str(blob.generation)}


def content(run: Run, payload: Any) -> bytes:
    """What is written. Made of the run and its input alone, so that every attempt makes the same bytes."""
    document = {"run_id": run.run_id, "slot": run.slot.isoformat() if run.slot else None, "input": payload}
    return json.dumps(document, ensure_ascii=False, sort_keys=True).encode()


def name(run: Run) -> str:
    day = f"{run.slot:%Y/%m/%d}/" if run.slot else ""
    return f"{run.step}/{day}{run.idempotency_key}.json"


def checksum(data: bytes) -> str:
    """CRC32C as Cloud Storage writes it."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def bucket() -> str:
    """The setting <STEP>_BUCKET. Raises Retry while it is empty."""
    setting = f"{os.environ['STEP'].upper()}_BUCKET"
    if not os.environ.get(setting):
        raise Retry(f"{setting} is empty: set it in settings.env and deploy again")
    return os.environ[setting]
