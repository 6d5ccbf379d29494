"""Posts to an outside API that honours the ``Idempotency-Key`` header.

An outcome that we do not know is repeated with the same key, under which the API acts once.

Input: any JSON. Result: ``{"status": HTTP status, "answer": their JSON or null}``.
"""

from __future__ import annotations

import json
import os
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError

from exactly_once import Permanent, Retry, Run, step

CONNECT_SECONDS = 5
ANSWER_SECONDS = 20
"""Both far below the lease: no call of ours is on its way when another attempt may begin."""

ANSWER_BYTES = 64 * 1024
"""The longest answer that is kept as the step's result."""

NOT_TAKEN = (425, 429)
"""Too early, too many requests: the API says that it has not looked at the request."""

UNKNOWN = (408, 409)
"""Timed out while it read; the same key is being worked on: the effect may be there or on its way."""


@step(on_unknown="retry")
def main(run: Run, payload: Any) -> dict[str, Any]:
    """Raises Retry where surely nothing was done, Permanent where the API refuses for good."""
    body = {"run_id": run.run_id, "slot": run.slot.isoformat() if run.slot else None, "input": payload}
    return post(url(), body, run.idempotency_key)


def url() -> str:
    """The setting <STEP>_URL. Raises Retry while it is empty."""
    name = f"{os.environ['STEP'].upper()}_URL"
    if not os.environ.get(name):
        raise Retry(f"{name} is empty: set it in settings.env and deploy again")
    return os.environ[name]


def post(address: str, body: dict[str, Any], key: str) -> dict[str, Any]:
    """One request, never repeated here. Anything but Retry and Permanent leaves the outcome unknown."""
    try:
        answer = requests.post(
            address,
            json=body,
            headers={"Idempotency-Key": key},
            timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
            allow_redirects=False,
        )
    except (requests.ConnectTimeout, requests.exceptions.SSLError) as error:
        raise Retry(f"no connection was made: {error}") from error
    except requests.ConnectionError as error:
        if error.args and isinstance(getattr(error.args[0], "reason", None), NewConnectionError):
            raise Retry(f"refused, or no such host: {error}") from error
        raise  # it broke while it was open: they may have acted
    if answer.status_code in NOT_TAKEN:
        raise Retry(f"the API asks for patience ({answer.status_code})")
    if 300 <= answer.status_code < 500 and answer.status_code not in UNKNOWN:
        raise Permanent(f"the API refuses: {answer.status_code} {answer.text[:200]}")
    answer.raise_for_status()  # 408, 409, 5xx: unknown
    return {"status": answer.status_code, "answer": parsed(answer)}


def parsed(answer: requests.Response) -> Any:
    """Their JSON; None for anything else, and for more than `ANSWER_BYTES`: the effect counts, not what they say."""
    try:
        return answer.json() if len(answer.content) <= ANSWER_BYTES else None
    except json.JSONDecodeError:
        return None
