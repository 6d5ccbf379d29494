"""Posts to an outside system that ignores idempotency keys but can be asked whether an effect is there.

After a crash, a time-out or a lost answer `look` asks first: what is there is taken as done, what is surely not there
is done again, and what nobody knows is held for a person.

Input: any JSON. Result: ``{"id": their id of the effect}``.
"""

from __future__ import annotations

import os
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError

from exactly_once import NOT_DONE, UNKNOWN, Done, Permanent, Retry, Run, step

CONNECT_SECONDS = 5
ANSWER_SECONDS = 20
"""Both far below the lease: what an earlier attempt sent has arrived, or never will, when `look` asks."""


def look(run: Run, payload: Any) -> Any:
    """Is the effect of this key there? `NOT_DONE` only where the system answers that it is not."""
    try:
        answer = requests.get(f"{url()}/effects/{run.idempotency_key}", timeout=(CONNECT_SECONDS, ANSWER_SECONDS))
    except requests.RequestException:
        return UNKNOWN
    if answer.status_code == 404:
        return NOT_DONE
    return Done({"id": str(answer.json()["id"])}) if answer.status_code == 200 else UNKNOWN


@step(on_unknown="hold", verify=look)
def main(run: Run, payload: Any) -> dict[str, str]:
    """The key goes along as the reference by which `look` finds the effect again."""
    body = {"reference": run.idempotency_key, "slot": run.slot.isoformat() if run.slot else None, "input": payload}
    try:
        answer = requests.post(
            url(),
            json=body,
            headers={"Idempotency-Key": run.idempotency_key},
            timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
            allow_redirects=False,
        )
    except (requests.ConnectTimeout, requests.exceptions.SSLError) as error:
        raise Retry(f"no connection was made: {error}") from error
    except requests.ConnectionError as error:
        if error.args and isinstance(getattr(error.args[0], "reason", None), NewConnectionError):
            raise Retry(f"refused, or no such host: {error}") from error
        raise
    if answer.status_code in (425, 429):
        raise Retry(f"the system asks for patience ({answer.status_code})")
    if 300 <= answer.status_code < 500 and answer.status_code not in (408, 409):
        raise Permanent(f"the system refuses: {answer.status_code} {answer.text[:200]}")
    answer.raise_for_status()
    return {"id": str(answer.json()["id"])}


def url() -> str:
    """The setting <STEP>_URL. Raises Retry while it is empty."""
    name = f"{os.environ['STEP'].upper()}_URL"
    if not os.environ.get(name):
        raise Retry(f"{name} is empty: set it in settings.env and deploy again")
    return os.environ[name]
