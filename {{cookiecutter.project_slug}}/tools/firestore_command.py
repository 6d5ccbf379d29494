"""`./pipeline firestore`: the embedded Firestore by itself, with or without faults."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from tools.errors import UserError
from tools.project import ROOT

SERVER = "tools.emulators.firestore"


@click.command("firestore", context_settings={"ignore_unknown_options": True})
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any free one.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Where the data lies; else in memory.")
@click.option("--control-port", type=click.IntRange(0, 65535), help="Take faults at http://127.0.0.1:PORT. 0: any.")
@click.argument("server_options", nargs=-1, type=click.UNPROCESSED)
def firestore(port: int, file: Path | None, control_port: int | None, server_options: tuple[str, ...]) -> None:
    """Run Firestore on this machine until Ctrl-C, for any client library.

    Further options go to the server: --ttl COLLECTION=FIELD, --ttl-delay SECONDS, --reader-locks (what a transaction
    has read is locked until it ends, even if its client is dead), --lock-wait SECONDS, --idle-limit SECONDS,
    --total-limit SECONDS, --sync off|normal|full, --clock-file FILE.

    With --control-port, a test can set faults from outside: answers that are lost, calls that land late, connections
    that are cut, a server or a caller that is killed. GET / there says what there is.
    """
    arguments = [*server_options, *(["--file", str(file.absolute())] if file else [])]
    if control_port is None:
        click.echo(f"FIRESTORE_EMULATOR_HOST=127.0.0.1:{port or 'PORT (see below)'}", err=True)
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", SERVER, *arguments, "--port", str(port)])
    with tempfile.TemporaryDirectory(prefix="firestore-") as folder:
        if file is None:  # a server that is killed by a fault has to find its data again
            arguments += ["--file", str(Path(folder) / "state.db")]
        _run_controlled(arguments, port, control_port)


def _run_controlled(arguments: list[str], port: int, control_port: int) -> None:
    import json
    import signal

    from tools.emulators.clock import SystemClock
    from tools.emulators.firestore.control import ChildError, Control

    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before there are threads that could get one
    control = Control(arguments, SystemClock())
    try:
        address, endpoint = control.start(port, control_port)
    except ChildError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot listen on port {port} or {control_port}: {error.strerror or error}") from None
    click.echo(json.dumps({"ready": True, "address": address, "control": endpoint}))
    click.echo(f"FIRESTORE_EMULATOR_HOST={address}", err=True)
    signal.sigwait(signals)
    control.stop()
