"""Where the pipeline is that an operator works on, and the options that all commands have."""

from __future__ import annotations

import functools
import getpass
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from exactly_once.launching import ByHand, Launcher
from exactly_once.log import Log
from exactly_once.lookups import Lookups
from exactly_once.operate import Operator
from exactly_once.starting import WorkflowsStarter
from tools.errors import UserError
from tools.operate.errors import told
from tools.operate.executions import Executions
from tools.project import ROOT, STATE, running
from tools.reach import Addresses, reach
from tools.settings import Settings, load
from tools.showing import console


@dataclass(frozen=True)
class Options:
    """What every command can be told."""

    cloud: bool
    environment: str | None
    json: bool
    yes: bool = False


@dataclass(frozen=True)
class Place:
    """One pipeline, reached. `events` is the laptop's file of events; None in the cloud."""

    settings: Settings
    options: Options
    lookups: Lookups
    operator: Operator
    launcher: Launcher
    starter: WorkflowsStarter
    executions: Executions
    events: Path | None
    out: Console

    def by_hand(self, why: str) -> Launcher:
        """Starts runs in the operator's name: they wait for no other run."""
        return replace(self.launcher, by=ByHand(self.operator.who, why))

    def now(self) -> datetime:
        return datetime.now(UTC)

    def say(self, *lines: str) -> None:
        """For a person; not among a machine's output."""
        for line in lines:
            click.echo(line, err=self.options.json)

    def confirm(self, plan: Sequence[str]) -> None:
        """Say what will be done, and ask, unless --yes was given. Raises Abort."""
        self.say(*plan)
        if not self.options.yes:
            click.confirm("Go on?", abort=True, err=self.options.json)

    def give(self, value: Any) -> None:
        """A machine's output, where it was asked for."""
        if self.options.json:
            click.echo(json.dumps(value, indent=2, default=_plain, ensure_ascii=False))

    def execution_link(self, name: str) -> str:
        """Where a person looks at an execution; the laptop has only its name."""
        if self.events:
            return name
        settings, identity = self.settings, name.rpartition("/")[2]
        return (
            f"https://console.cloud.google.com/workflows/workflow/{settings.region}/{settings.workflow}"
            f"/execution/{identity}?project={settings.project}"
        )


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


@contextmanager
def place(options: Options) -> Iterator[Place]:
    """Reach it; errors from outside are one line. Raises UserError."""
    settings = load(ROOT, options.environment)
    chain = None if options.cloud else running(STATE)
    if chain is None and not options.cloud:
        raise UserError("no chain runs on this machine: start it with ./pipeline local, or add --cloud")
    addresses = Addresses(chain.firestore, chain.workflows) if chain else Addresses()
    who = _account() if options.cloud else getpass.getuser()
    with told(), reach(settings, addresses, Log(lambda line: None), who) as hands:
        client = hands.launcher.protocol.store.client  # type: ignore[attr-defined]
        executions = Executions(settings.workflow_name, addresses.workflows)
        try:
            yield Place(
                settings,
                options,
                Lookups(client, settings.pipeline),
                hands.operator,
                hands.launcher,
                hands.starter,
                executions,
                Path(chain.events) if chain else None,
                console(stderr=options.json),
            )
        finally:
            executions.close()


def _account() -> str:
    """The account that gcloud acts as, which the records name; without gcloud the login name."""
    if shutil.which("gcloud"):
        command = ["gcloud", "config", "get-value", "account", "--quiet"]
        asked = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if asked.returncode == 0 and "@" in asked.stdout:
            return asked.stdout.strip()
    return getpass.getuser()


def reads(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that changes nothing: gets a Place first."""
    return _options(command, asks=False)


def changes(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that changes something: says what, and asks unless there is --yes."""
    return _options(command, asks=True)


def _options(command: Callable[..., Any], asks: bool) -> Callable[..., Any]:
    @functools.wraps(command)
    def reached(cloud: bool, environment: str | None, form: str, yes: bool = False, **arguments: Any) -> Any:
        with place(Options(cloud, environment, form == "json", yes)) as there:
            return command(there, **arguments)

    made: Callable[..., Any] = reached
    if asks:
        made = click.option("--yes", is_flag=True, help="Do not ask first.")(made)
    made = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)(
        made
    )
    made = click.option("--env", "environment", metavar="NAME", help="settings.NAME.env lies over settings.env.")(made)
    return click.option("--cloud", is_flag=True, help="On Google Cloud, with your own credentials.")(made)


def note(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option --note: why, which is kept in the record."""
    if required:
        return click.option("--note", prompt="Why? (kept in the record)", help="Why; it is kept in the record.")
    return click.option("--note", default="", help="Why; it is kept in the record.")
