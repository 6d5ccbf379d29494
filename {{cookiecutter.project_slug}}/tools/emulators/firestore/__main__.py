"""The command: `python -m tools.emulators.firestore --port N --file F`; see `--help`.

Prints one JSON line, `{"ready": true, "address": "127.0.0.1:PORT"}`, once it answers, and runs until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

CLIENT = "google.cloud.firestore_v1"


def load_messages_alone() -> None:
    """Load the protocol's messages without the client around them: 0.2 s and 25 MB that a server has no use for.

    The client's package is replaced by an empty one in which only the messages are found; so in this process, which
    is the server's own, the client cannot be imported.
    """
    package = importlib.util.find_spec("google.cloud")
    folders = package.submodule_search_locations if package else None
    found = [str(Path(folder) / "firestore_v1") for folder in folders or () if Path(folder, "firestore_v1").is_dir()]
    if not found:
        raise SystemExit("google-cloud-firestore is not installed here")
    stand_in = ModuleType(CLIENT)
    stand_in.__path__ = found
    sys.modules[CLIENT] = stand_in


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="firestore", description="Firestore for one machine, on SQLite.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--file", type=Path, help="where the data lies; without it, in memory")
    parser.add_argument("--clock-file", type=Path, help="the offset of the emulators' clock (see clock.py)")
    parser.add_argument(
        "--ttl",
        action="append",
        default=[],
        type=_policy,
        metavar="COLLECTION=FIELD",
        help="delete the documents of a collection group once the time in FIELD is over; may be repeated",
    )
    parser.add_argument(
        "--ttl-delay", type=float, metavar="SECONDS", help="how long after its expiry a document goes (default: 86400)"
    )
    parser.add_argument("--idle-limit", type=float, default=60.0, metavar="SECONDS", help="of a transaction")
    parser.add_argument("--total-limit", type=float, default=270.0, metavar="SECONDS", help="of a transaction")
    parser.add_argument(
        "--reader-locks",
        action="store_true",
        help="what a transaction has read is locked against every writer until it ends, even if its client is dead",
    )
    parser.add_argument(
        "--lock-wait",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="with --reader-locks: how long a writer waits before it is ABORTED",
    )
    parser.add_argument(
        "--sync",
        choices=("off", "normal", "full"),
        default="normal",
        help="SQLite's `synchronous`: only `full` outlasts a power cut, all outlast kill -9",
    )
    return parser


def _policy(text: str) -> tuple[str, str]:
    group, _, field = text.partition("=")
    if not group or not field:
        raise argparse.ArgumentTypeError(f"{text!r} is not COLLECTION=FIELD")
    return group, field


def _clock(file: Path | None) -> Callable[[], float]:
    if file is None:
        return time.time
    from tools.emulators.clock import OffsetClock, OffsetFile

    return OffsetClock(OffsetFile(file)).now


def main() -> None:
    arguments = parser().parse_args()
    load_messages_alone()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is said in our own words
    from tools.emulators.firestore import server, ttl
    from tools.emulators.firestore.errors import FirestoreError, StorageError
    from tools.emulators.firestore.transactions import Limits

    options = server.Options(
        file=arguments.file,
        host=arguments.host,
        port=arguments.port,
        now=_clock(arguments.clock_file),
        synchronous=arguments.sync,
        limits=Limits(arguments.idle_limit, arguments.total_limit, arguments.lock_wait),
        reader_locks=arguments.reader_locks,
        ttl=tuple(arguments.ttl),
        ttl_delay=ttl.DELAY_SECONDS if arguments.ttl_delay is None else arguments.ttl_delay,
    )
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        running = server.Server(options)
    except (StorageError, server.PortInUse, FirestoreError, OSError) as error:
        raise SystemExit(f"firestore: {error}") from None
    running.start()
    print(json.dumps({"ready": True, "address": running.address}), flush=True)
    signal.sigwait(signals)
    running.stop()


if __name__ == "__main__":
    main()
