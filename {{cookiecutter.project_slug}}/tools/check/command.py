"""The command `./pipeline check`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from tools.check.budget import budget
from tools.check.cost import AS_OF, SECONDS_A_CALL, Cost, cost
from tools.check.findings import Finding, Level, Project
from tools.check.imports import imports
from tools.check.names import names
from tools.check.receivers import receivers
from tools.check.schedule import schedule
from tools.check.sources import sources
from tools.check.unread import unread
from tools.check.wiring import wiring
from tools.emulators.workflows.definition import load as load_workflow
from tools.emulators.workflows.errors import DefinitionErrors
from tools.project import ROOT
from tools.settings import load as load_settings

WORKFLOW = "workflows/main.yaml"


@click.command()
@click.option("--env", "environment", metavar="NAME", help="The environment: settings.NAME.env lies over settings.env.")
@click.option("--deploy", is_flag=True, help="What only matters in the cloud is an error too (deploy.sh asks so).")
@click.option("--items", default=100, show_default=True, help="Elements of a fan-out, for the cost.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def check(environment: str | None, deploy: bool, items: int, form: str) -> None:
    """Find what would go wrong in the cloud, and estimate what a month costs. Exits with 1 if there is an error."""
    project, broken = look(ROOT, environment)
    found = [*broken, *findings(project, "error" if deploy else "warning", datetime.now(UTC))]
    estimate = cost(project, items)
    if form == "json":
        click.echo(
            json.dumps({"findings": [finding.as_json() for finding in found], "cost": as_json(estimate)}, indent=2)
        )
    else:
        show(found, estimate)
    sys.exit(any(finding.level == "error" for finding in found))


def look(root: Path, environment: str | None) -> tuple[Project, list[Finding]]:
    """Read the project; what its workflow breaks of the language. Raises SettingsError."""
    settings = load_settings(root, environment)
    file = root / WORKFLOW
    if not file.exists():
        return Project(settings, None), [
            Finding("error", WORKFLOW, 1, "there is no workflow: nothing calls the functions", "Write it")
        ]
    try:
        return Project(settings, load_workflow(file.read_text(), WORKFLOW, connectors=lambda name: None)), []
    except DefinitionErrors as error:
        return Project(settings, None), [
            Finding(
                "error",
                WORKFLOW,
                broken.line,
                f"Workflows refuses this: {broken.message}",
                "Mend it; the deploy of the workflow fails",
            )
            for broken in error.findings
        ]


def findings(project: Project, cloud: Level, now: datetime) -> Iterator[Finding]:
    """Every finding, errors first; `cloud` is the level of what only matters in the cloud."""
    found = [
        *schedule(project, now),
        *budget(project),
        *names(project),
        *unread(project),
        *receivers(project, cloud),
        *wiring(project),
        *sources(project),
        *imports(project),
    ]
    yield from sorted(found, key=lambda finding: (finding.level != "error", finding.file, finding.line))


def show(found: list[Finding], estimate: Cost) -> None:
    for finding in found:
        click.secho(str(finding), fg="red" if finding.level == "error" else "yellow")
    errors = sum(finding.level == "error" for finding in found)
    counts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((errors, "error"), (len(found) - errors, "warning"))]
    click.echo(f"check: {', '.join(counts)}" if found else "check: nothing found")
    click.echo(
        f"cost: about ${estimate.total:.2f} a month for {estimate.runs} runs with {estimate.items} items a fan-out "
        f"and {SECONDS_A_CALL:g} s "
        f"a call (list prices of {AS_OF}, without free quotas; --format json has the parts)"
    )


def as_json(estimate: Cost) -> dict[str, object]:
    return {
        "currency": "USD",
        "prices_as_of": AS_OF,
        "runs": estimate.runs,
        "items": estimate.items,
        "total": round(estimate.total, 4),
        "parts": [
            {"what": what, "amount": amount, "cost": round(dollars, 6)} for what, amount, dollars in estimate.lines
        ],
    }
