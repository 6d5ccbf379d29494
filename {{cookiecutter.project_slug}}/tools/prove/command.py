"""`./pipeline prove`: is this pipeline exactly-once? It is tried, not believed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tools.errors import UserError
from tools.project import ROOT, STATE, owned
from tools.settings import load as load_settings
from tools.showing import console

from . import grid, junit, page
from .cells import Cell, Trouble, combinations, named
from .proof import FAILED, Tell, Verdict, prove
from .trial import Subject


@click.command("prove")
@click.option("--only", metavar="PATTERN", multiple=True, help="Only cells whose name matches: 'proxy/*', '*/killed*'.")
@click.option("--cell", "cell_ids", metavar="NAME", multiple=True, help="This cell alone (several faults joined by +).")
@click.option("--list", "listing", is_flag=True, help="Name the cells and stop.")
@click.option("--random", "count", type=click.IntRange(1), help="N random combinations of up to three faults instead.")
@click.option("--seed", type=int, default=None, help="Of --random; printed, so that a run can be repeated.")
@click.option("--ignore", metavar="DOC:FIELD", multiple=True, help="A field that may differ, such as 'reports/*:note'.")
@click.option(
    "--jobs", "-j", type=click.IntRange(1, 16), default=None, help="Chains at once; the machine's cores if unset."
)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write one HTML page.")
@click.option("--junit", "junit_file", type=click.Path(path_type=Path, dir_okay=False), help="Also write JUnit XML.")
def command(
    only: tuple[str, ...],
    cell_ids: tuple[str, ...],
    listing: bool,
    count: int | None,
    seed: int | None,
    ignore: tuple[str, ...],
    jobs: int | None,
    html: Path | None,
    junit_file: Path | None,
) -> None:
    """Run this pipeline once cleanly and once under each fault at each hop, and compare.

    Exits with 1 unless the documents end equal, every receiver saw each idempotency key take effect once, and the run
    completed, in every cell.
    """
    for file in (html, junit_file):
        if file and not file.absolute().parent.is_dir():
            raise click.UsageError(f"there is no folder {file.parent} to write {file.name} to")
    for pattern in ignore:
        if ":" not in pattern:
            raise click.UsageError(f"--ignore {pattern!r}: write DOCUMENT:FIELD, such as 'reports/*:note'")
    out = console()
    settings = load_settings(ROOT)
    seed = int(time.time()) % 100_000 if seed is None else seed
    state = STATE / "prove"
    with owned(STATE / "prove-lock"):
        shutil.rmtree(state, ignore_errors=True)
        with _progress(out) as (say, tell):
            chosen = _Choice(only, cell_ids, listing, count, seed)
            cores = jobs or max(2, os.cpu_count() or 2)
            proof = prove(subject(ROOT), settings, state, jobs=cores, ignore=ignore, choose=chosen, say=say, tell=tell)
        shutil.rmtree(state, ignore_errors=True)
    if listing and not proof.problems:
        for cell in proof.cells:
            click.echo(cell.id)
        return
    grid.show(out, proof)
    if count:
        out.print(f"seed {seed}: ./pipeline prove --random {count} --seed {seed} tries the same again")
    if html:
        page.write(proof, settings.pipeline, html)
    if junit_file:
        junit.write(proof, junit_file)
    sys.exit(0 if proof.holds else 1)


class _Choice:
    """Which troubles to try, from the cells that there are. Raises UserError for a name that is none."""

    def __init__(
        self, only: tuple[str, ...], cell_ids: tuple[str, ...], listing: bool, count: int | None, seed: int
    ) -> None:
        self.only = only
        self.cell_ids = cell_ids
        self.listing = listing
        self.count = count
        self.seed = seed

    def __call__(self, found: list[Cell]) -> list[Trouble]:
        if self.listing:
            return []
        if self.cell_ids:
            try:
                return named(self.cell_ids, found)
            except KeyError as error:
                raise UserError(f"there is no cell {error}: see ./pipeline prove --list") from None
        if self.only:
            found = [cell for cell in found if any(fnmatchcase(cell.id, pattern) for pattern in self.only)]
            if not found:
                raise UserError(f"no cell matches {' or '.join(self.only)}: see ./pipeline prove --list")
        if self.count:
            if len(found) < 2:
                raise UserError("--random needs two cells at least")
            return combinations(found, self.count, self.seed)
        return [Trouble((cell,)) for cell in found]


def subject(project: Path) -> Subject:
    """What the project's tests/expected.py names: a small sample, or its sample, and the slot. Raises UserError."""
    from tools.demo import load_expected
    from tools.loading import read

    expected: ModuleType = load_expected(project)
    sample: Any = getattr(expected, "SMALL_SAMPLE", None) or expected.SAMPLE or []
    files = [sample] if isinstance(sample, str) else list(sample)
    documents: dict[str, Any] = {}
    for name in files:
        documents.update(read(project, project / name))
    return Subject(project, documents, datetime.fromisoformat(expected.SLOT))


@contextmanager
def _progress(out: Console) -> Iterator[tuple[Any, Tell]]:
    """What to call with a sentence, and after each cell. On a terminal a bar with the time left, else some lines."""
    if not out.is_terminal:
        yield (lambda text: out.print(text)), _lines(out)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("starting the chains", total=None)

        def tell(done: int, of: int, verdict: Verdict | None) -> None:
            bar.update(task, completed=done, total=of)
            if verdict and verdict.status == FAILED:
                bar.console.print(f"failed: {verdict.trouble.id}", style="red", highlight=False)

        yield (lambda text: bar.update(task, description=text)), tell


def _lines(out: Console) -> Tell:
    def tell(done: int, of: int, verdict: Verdict | None) -> None:
        if verdict and verdict.status == FAILED:
            out.print(f"failed: {verdict.trouble.id}")
        if done % 20 == 0 or done == of:
            out.print(f"{done} of {of}")

    return tell
