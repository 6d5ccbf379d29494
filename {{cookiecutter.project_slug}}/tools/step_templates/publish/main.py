"""Publishes a message to Pub/Sub with the key as an attribute.

Pub/Sub delivers at least once, and a repeat of this step after a lost answer publishes a second message with the same
key. So the effect appears once if, and only if, the subscriber remembers the keys that it has handled.

Input: any JSON. Result: ``{"message": the message's id}``.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from google.api_core.exceptions import InvalidArgument, NotFound, PermissionDenied, ResourceExhausted
from google.cloud import pubsub_v1

from exactly_once import Permanent, Retry, Run, step

SECONDS = 30
"""For the one call; far below the lease."""


@cache
def client() -> pubsub_v1.PublisherClient:
    return pubsub_v1.PublisherClient()


@step(on_unknown="retry")
def main(run: Run, payload: Any) -> dict[str, str]:
    """Raises Permanent where the topic refuses the message for good."""
    place = topic()
    body = {"run_id": run.run_id, "slot": run.slot.isoformat() if run.slot else None, "input": payload}
    try:
        sent = client().publish(
            place, json.dumps(body).encode(), idempotency_key=run.idempotency_key, timeout=SECONDS, retry=None
        )
        return {"message": str(sent.result(timeout=2 * SECONDS))}
    except ResourceExhausted as error:
        raise Retry(f"Pub/Sub asks for patience: {error.message}") from error
    except (InvalidArgument, NotFound, PermissionDenied) as error:
        raise Permanent(f"Pub/Sub refuses: {error.message}") from error


def topic() -> str:
    """The setting <STEP>_TOPIC. Raises Retry while it is empty."""
    setting = f"{os.environ['STEP'].upper()}_TOPIC"
    if not os.environ.get(setting):
        raise Retry(f"{setting} is empty: set it in settings.env and deploy again")
    return os.environ[setting]
