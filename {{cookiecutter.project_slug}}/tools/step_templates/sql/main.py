"""Writes to PostgreSQL, once: the effect and a row that remembers the key are one SQL transaction.

A repeat meets the row, changes nothing and gives the result that is stored in it. Two attempts at once are no
danger: the second waits at the row of the first until that is committed or gone.

Input: any JSON. Result: what `effect` returns.
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from exactly_once import Retry, Run, step

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 60
"""Both far below the lease; the second ends the statement at the server, too."""

KEYS = """
CREATE TABLE IF NOT EXISTS exactly_once_keys (
    key text PRIMARY KEY,
    result jsonb,
    at timestamptz NOT NULL DEFAULT now()
)"""
"""Rows may be deleted when no run that old is repeated any more: after RETENTION_DAYS."""

EVENTS = "CREATE TABLE IF NOT EXISTS step_events (id bigserial PRIMARY KEY, step text, slot timestamptz, input jsonb)"
"""Where the default `effect` writes."""

LOCK = 0x65786163
"""Advisory lock of the one who makes the tables (the number is arbitrary)."""

_prepared: set[str] = set()


def effect(connection: psycopg.Connection[Any], run: Run, payload: Any) -> dict[str, Any]:
    """Put your own statements here: all on this connection, without a commit. Returns the step's result."""
    row = connection.execute(
        "INSERT INTO step_events (step, slot, input) VALUES (%s, %s, %s) RETURNING id",
        (run.step, run.slot, Jsonb(payload)),
    ).fetchone()
    return {"id": row[0] if row else None}


@step(on_unknown="retry")
def main(run: Run, payload: Any) -> Any:
    """Raises Retry where no connection was made. A commit whose answer was lost shows itself at the repeat."""
    with connect() as connection, connection.transaction():
        new = connection.execute(
            "INSERT INTO exactly_once_keys (key) VALUES (%s) ON CONFLICT DO NOTHING RETURNING key",
            (run.idempotency_key,),
        ).fetchone()
        if new is None:
            done = connection.execute("SELECT result FROM exactly_once_keys WHERE key = %s", (run.idempotency_key,))
            row = done.fetchone()
            assert row is not None, "a row that conflicts is committed"
            return row[0]
        result = effect(connection, run, payload)
        connection.execute(
            "UPDATE exactly_once_keys SET result = %s WHERE key = %s", (Jsonb(result), run.idempotency_key)
        )
        return result


def connect() -> psycopg.Connection[Any]:
    """A connection to <STEP>_DATABASE_URL on which every statement commits by itself outside `transaction()`."""
    name = f"{os.environ['STEP'].upper()}_DATABASE_URL"
    url = os.environ.get(name)
    if not url:
        raise Retry(f"{name} is empty: see SECRETS in step.env")
    options = f"-c statement_timeout={STATEMENT_SECONDS}s"
    try:
        connection = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS, options=options)
    except psycopg.OperationalError as error:
        raise Retry(f"no connection to the database: {type(error).__name__}") from error  # its text may hold the URL
    try:
        prepare(connection, url)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: psycopg.Connection[Any], url: str) -> None:
    """Make the tables, once a process. Only one at a time does: IF NOT EXISTS alone does not stand two at once."""
    if url in _prepared:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        connection.execute(KEYS)
        connection.execute(EVENTS)
    _prepared.add(url)
