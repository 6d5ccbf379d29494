"""From a source to a definition that Workflows would deploy, or everything that stops it."""

from __future__ import annotations

from collections.abc import Callable

from . import limits, reading, scopes, source, steps
from .checks import Checker, refuse
from .errors import DefinitionErrors
from .model import Definition
from .reading import Findings
from .source import Mark, SourceError

__all__ = ["Definition", "load", "refuse"]


def load(text: str, file: str = "main.yaml", *, connectors: Callable[[str], str | None] = refuse) -> Definition:
    """Parse, check and compile a workflow source, YAML or JSON; `file` names it in findings.

    `connectors` gets the name of each `googleapis.*` call and answers None where there is a stand-in for it, else why
    it is refused. Raises DefinitionErrors with every finding.
    """
    findings = Findings(file)
    if len(text.encode(errors="surrogatepass")) > limits.SOURCE_LIMIT:
        findings.add(
            Mark(1, 1), f"the source is larger than {limits.SOURCE_LIMIT} bytes: move parts to other workflows"
        )
        raise DefinitionErrors(findings.all)
    try:
        root = source.parse(text, findings.add)
    except SourceError as error:
        findings.add(error.at, str(error))
        raise DefinitionErrors(findings.all) from error
    workflows = reading.read(root, findings)
    if not findings.all:
        names = scopes.analyse(workflows, findings)
        Checker(workflows, names, findings, connectors).run()
    if findings.all:
        raise DefinitionErrors(findings.all)
    return Definition(file, text, workflows, connectors, steps.compile_all(workflows, names))
