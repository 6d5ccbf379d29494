"""`./pipeline local`, `run` and `test`: the chain on this machine."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

import click

from tools.project import ROOT, STATE, Running, announce, owned, withdraw

if TYPE_CHECKING:
    from tools.emulators.chain import Chain

FIRST_PORT = 8700
"""Of the ports of `local`: proxy, the steps in order, receivers, Workflows (REST, gRPC), Firestore."""


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=FIRST_PORT,
    show_default=True,
    help="The first of the ports that the parts listen on.",
)
@click.option("--firestore", default="embedded", show_default=True, metavar="embedded|official|HOST:PORT")
@click.option("--paused", is_flag=True, help="The Scheduler delivers nothing by itself: only `run` starts runs.")
def local(port: int, firestore: str, paused: bool) -> None:
    """Run the chain on this machine until Ctrl-C: the Scheduler delivers the project's schedule for real.

    What it keeps lies in .local/, so that the next start carries on; delete the folder to begin anew.
    """
    from tools.emulators.chain import Chain
    from tools.showing import Lines, console
    from tools.watching import watching

    out = console()
    began = time.monotonic()
    with owned(STATE):
        chain = Chain(ROOT, STATE, firestore=firestore, wired=False, cron=not paused, ports=port)
        chain.log.listen(Lines(out))
        ended = _until_signalled()
        try:
            with chain, watching(chain):
                announce(STATE, where(chain))
                _note_schedule(chain, paused)
                _welcome(chain, paused, time.monotonic() - began)
                ended.wait()
                out.print("stopping ...", style="dim")
        finally:
            withdraw(STATE)


def _note_schedule(chain: Chain, paused: bool) -> None:
    """From now on this schedule is in force: `gaps` goes by it."""
    from tools.operate.schedule import record

    with chain.database() as client:
        off = paused or chain.scheduler.paused
        record(client, chain.settings, datetime.now(UTC), off, getpass.getuser())


def _until_signalled() -> threading.Event:
    """Set by Ctrl-C, or by whoever asks this process to end."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    return ended


def where(chain: Chain) -> Running:
    return Running(
        pid=os.getpid(),
        firestore=chain.firestore_address,
        workflows=chain.workflows.grpc_address,
        workflows_url=chain.workflows.rest_url,
        services=dict(chain.urls),
        events=str(chain.state / "events.jsonl"),
    )


def _welcome(chain: Chain, paused: bool, seconds: float) -> None:
    from rich.table import Table

    from tools.showing import console

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, url in chain.urls.items():
        table.add_row(name, url)
    table.add_row("workflows", f"{chain.workflows.rest_url}  (gRPC {chain.workflows.grpc_address})")
    table.add_row("firestore", f"{chain.firestore_address}  (export FIRESTORE_EMULATOR_HOST={chain.firestore_address})")
    table.add_row("state", str(chain.state))
    out = console()
    out.print(f"\n[bold]{chain.settings.pipeline}[/] is ready after {seconds:.1f} s\n")
    out.print(table)
    zone = chain.settings.time_zone
    due = chain.scheduler.next_slot().isoformat(timespec="minutes")
    waits = "the Scheduler is paused" if paused or chain.scheduler.paused else f"next slot {due}"
    out.print(f"\nschedule {chain.settings.schedule!r} in {zone}: {waits}")
    out.print("./pipeline run starts a run now; Ctrl-C ends the chain\n", style="dim")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def test(arguments: tuple[str, ...]) -> None:
    """Run the project's tests; ARGUMENTS go to pytest."""
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", *(arguments or ["tests"])], cwd=ROOT))


@click.command()
@click.option("--key", metavar="K", help="A run by hand under a key of your own: the same key is the same run.")
@click.option(
    "--slot", metavar="T", help="The run of this scheduled instant (RFC 3339), as the Scheduler would name it."
)
@click.option("--firestore", default="embedded", show_default=True, metavar="embedded|official|HOST:PORT")
def run(key: str | None, slot: str | None, firestore: str, note: str = "") -> None:
    """Start one run and wait for its end: on the chain of `./pipeline local`, or on one that is started for it.

    Without an option, a run by hand under a new key. A run that exists is not started again.
    """
    from exactly_once.identity import manual_run, slot_run
    from tools.running import Runner
    from tools.settings import load

    if key == "":
        raise click.UsageError("--key is empty: leave it away for a new one")
    if key and slot:
        raise click.UsageError("--key and --slot say two different things: give one of them")
    settings = load(ROOT)
    if slot:
        wanted = slot_run(settings.pipeline, settings.scope, settings.job, _instant(slot), settings.time_zone)
    else:
        wanted = manual_run(
            settings.pipeline, settings.scope, key or _new_key(), job=settings.job, zone=settings.time_zone
        )
    sys.exit(0 if Runner(settings, firestore, note).run(wanted) else 1)


def _new_key() -> str:
    return f"by hand {datetime.now(UTC).isoformat(timespec='milliseconds')}"


def _instant(text: str) -> datetime:
    from exactly_once.identity import parse_instant

    try:
        return parse_instant(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--slot") from None
