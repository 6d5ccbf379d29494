"""The command of a project, ./pipeline. A command's module is imported when it is asked for, so that help is quick."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import NamedTuple

import click

from tools.errors import UserError

REFUSALS = frozenset([errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
"""What the file system says that a person has to put right."""


class Entry(NamedTuple):
    """Where a command is, and the line that the list of commands shows."""

    module: str
    name: str
    help: str


COMMANDS = {
    "local": Entry("tools.local", "local", "Run the chain on this machine until Ctrl-C."),
    "run": Entry("tools.operate.starting", "run", "Start one run, by hand or for a slot, and wait for its end."),
    "load": Entry("tools.loading", "load", "Check a file of data and load it into Firestore."),
    "demo": Entry("tools.demo", "demo", "Run one slot under duplicates and faults, and print its receipt."),
    "run-workflow": Entry(
        "tools.workflow_file", "run_workflow", "Run one workflow file by itself and print its result."
    ),
    "prove": Entry("tools.prove.command", "command", "Run this pipeline under every fault at every hop, and compare."),
    "add-step": Entry("tools.steps", "add_step", "Add a step from a template, and its call in the workflow."),
    "remove-step": Entry("tools.steps", "remove_step", "Remove a step and its call in the workflow."),
    "list-templates": Entry("tools.steps", "list_templates", "List the templates that add-step knows."),
    "check": Entry("tools.check.command", "check", "Find what would go wrong in the cloud, and what a month costs."),
    "runs": Entry("tools.operate.listing", "runs", "List runs: how they stand, how long they took, what is held."),
    "show": Entry("tools.operate.listing", "show", "Show the receipt of one run: its steps, errors and log lines."),
    "resume": Entry("tools.operate.starting", "resume", "Go on with runs that failed: what is done is replayed."),
    "resolve": Entry("tools.operate.deciding", "resolve", "Decide a step that is held or has failed."),
    "accept": Entry("tools.operate.deciding", "accept", "Let a recorded result stand for a changed input."),
    "redo": Entry("tools.operate.deciding", "redo", "Have steps of a run done again, from one on."),
    "cancel": Entry("tools.operate.deciding", "cancel", "Cancel the execution of a run."),
    "gaps": Entry("tools.operate.gaps", "gaps", "Compare the slots that were due with the runs there are."),
    "backfill": Entry("tools.operate.gaps", "backfill", "Run the slots of a time that have not run."),
    "deployed": Entry("tools.operate.gaps", "deployed", "Note the schedule that is in force from now on, for gaps."),
    "firestore": Entry("tools.firestore_command", "firestore", "Run Firestore by itself, for any client."),
    "test": Entry("tools.local", "test", "Run the project's tests."),
}


class Lazy(click.Group):
    """A group that knows its commands by name and help, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """An exactly-once pipeline: run it here, try it, deploy it, operate it."""


def main() -> None:
    """Run, and turn what a person can cause into one line and an exit code: 1 for an error, 2 for wrong usage."""
    try:
        code = pipeline(prog_name="./pipeline", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except UserError as error:
        click.echo(f"Error: {error}", err=True)
        code = 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        code = 130
    except BrokenPipeError:  # `./pipeline ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        click.echo(f"Error: {error.filename or 'a file'}: {error.strerror}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
