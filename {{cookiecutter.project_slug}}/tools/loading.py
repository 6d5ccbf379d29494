"""`./pipeline load FILE`: check a file of the project's data, then write it to Firestore.

What a row is, and what is wrong with one, is the project's own: `data/load.py` has

    def documents(path: Path) -> Iterator[tuple[str, dict]]:   # document path, fields; raises BadRow

All rows are checked before the first is written. A document that is in the database already stays as it is, since a run
may have changed it: the same file can be loaded again, and loading goes on where it was interrupted.
"""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from tools.errors import UserError
from tools.project import ROOT, STATE, running


class BadRow(UserError):  # noqa: N818 - a verdict on the file
    """A row that cannot be loaded; line and column count from 1, column 0 is the whole line."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column
        self.message = message


def read(project: Path, file: Path) -> dict[str, dict[str, Any]]:
    """The documents that `file` stands for, by path. Raises UserError that names file, line and column."""
    source = project / "data" / "load.py"
    if not source.exists():
        raise UserError(f"this project has no {source.relative_to(project)}, which says how a file becomes documents")
    spec = importlib.util.spec_from_file_location("project_data_load", source)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, dict[str, Any]] = {}
    try:
        for path, fields in module.documents(file):
            if path in found:
                raise UserError(f"{file}: document {path} comes twice; nothing was loaded")
            found[path] = fields
    except BadRow as bad:
        raise UserError(f"{file}:{bad.line}:{bad.column}: {bad.message}; nothing was loaded") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 at byte {error.start}; nothing was loaded") from None
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None
    return found


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--cloud", is_flag=True, help="Into the project's Firestore on Google Cloud, with your own credentials.")
@click.option("--env", "environment", default=None, metavar="NAME", help="With --cloud: settings.NAME.env on top.")
def load(file: Path, cloud: bool, environment: str | None) -> None:
    """Check FILE and load it into Firestore: the laptop's, or with --cloud the project's own.

    Every row is checked before anything is written. A document that is there already stays as it is.
    """
    from tools.database import add_missing, connect
    from tools.emulators.storage import firestore_alone
    from tools.settings import load as load_settings

    documents = read(ROOT, file)
    settings = load_settings(ROOT, environment)
    if cloud:
        with connect(settings.project, settings.database, None) as client:
            created = add_missing(client, documents)
        where = f"database {settings.database} of project {settings.project}"
    else:
        chain = running(STATE)
        with firestore_alone(STATE) if chain is None else nullcontext(chain.firestore) as address:
            with connect(settings.project, settings.database, address) as client:
                created = add_missing(client, documents)
        where = "Firestore on this machine"
    there = len(documents) - created
    click.echo(f"{created} documents loaded into {where}" + (f"; {there} were there already" if there else ""))
