"""`./pipeline run-workflow FILE`: one workflow source by itself, without the chain around it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from .emulators.workflows.runtime import StepEvent

NAME = "projects/local/locations/local/workflows/file"
"""What the workflow is called while it runs."""

YEAR = 365 * 24 * 3600.0
"""Seconds that an execution may last."""


def _pairs(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE options as a dict."""
    pairs = {}
    for text in values:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE", param=parameter)
        pairs[name] = value
    return pairs


@click.command("run-workflow")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--data", metavar="JSON", help="The argument that main gets.")
@click.option("--trace", is_flag=True, help="Show each step as it begins, and what failed.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", callback=_pairs, help="A variable for sys.get_env.")
@click.option("--connector", multiple=True, metavar="SERVICE=URL", callback=_pairs, help="A stand-in of a connector.")
@click.option("--firestore", metavar="HOST:PORT", help="A Firestore emulator for Firestore's connectors.")
def run_workflow(
    file: Path, data: str | None, trace: bool, env: dict[str, str], connector: dict[str, str], firestore: str | None
) -> None:
    """Run the workflow in FILE and print its result as JSON.

    HTTP calls are really made. Logs and the trace go to standard error. The exit status is 1 if the workflow cannot be
    deployed or fails.
    """
    from .emulators.clock import SystemClock
    from .emulators.workflows.api import WorkflowsServer
    from .emulators.workflows.status import ApiError

    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file}: cannot be read: {error}") from None
    clock = SystemClock()
    server = WorkflowsServer(
        None,
        clock,
        log=_print_log,
        connectors=connector,
        firestore=firestore,
        watch=_Trace(clock.now()).show if trace else None,
    )
    try:
        server.start()
        server.deploy(NAME, source, env=env)
        created = server.executions.create_execution({"parent": NAME, "execution": {"argument": data}})
        record = server.executions.wait(created["name"], YEAR)
    except ApiError as error:
        raise click.ClickException(error.message.replace("main.yaml:", f"{file}:")) from None
    finally:
        server.stop()
    if record["state"] != "SUCCEEDED":
        raise click.ClickException(f"the execution {record['state'].lower()}: {_reason(record.get('error', {}))}")
    click.echo(json.dumps(json.loads(record["result"]), indent=2, ensure_ascii=False))


def _reason(error: dict[str, Any]) -> str:
    return str(error.get("context") or error.get("payload") or "for an unknown reason").strip()


def _print_log(entry: dict[str, Any]) -> None:
    if entry["event"] != "workflow.log":
        return
    text = entry["message"] or json.dumps(entry.get("data"), ensure_ascii=False)
    click.echo(f"{entry['severity']}: {text}", err=True)


class _Trace:
    def __init__(self, began: float) -> None:
        self._began = began

    def show(self, event: StepEvent) -> None:
        """A line when a step begins, another if it fails."""
        if event.state == "SUCCEEDED":
            return
        line = f"{event.time - self._began:9.3f} s  {event.routine}.{event.step} ({event.kind})"
        if event.branch:
            line += f" [{event.branch}]"
        if event.error is not None:
            line += f" failed: {event.error.summary()}"
        click.echo(line, err=True)
        sys.stderr.flush()
