"""The result as JUnit's XML, which CI systems show: a test case a cell."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from .grid import replay
from .proof import FAILED, Proof


def write(proof: Proof, file: Path) -> None:
    """Raises OSError."""
    failures = len(proof.failed) + len(proof.problems)
    tests = len(proof.verdicts) + len(proof.problems)
    suite = ElementTree.Element(
        "testsuite", name="prove", tests=str(tests), failures=str(failures), time=f"{proof.seconds:.2f}"
    )
    for problem in proof.problems:
        case = ElementTree.SubElement(suite, "testcase", classname="prove.clean", name=problem[:100])
        ElementTree.SubElement(case, "failure", message=problem)
    for verdict in proof.verdicts:
        first = verdict.trouble.cells[0].hop
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"prove.{first.caller}.{first.callee}",
            name=verdict.trouble.id,
            time=f"{verdict.seconds:.2f}",
        )
        if verdict.status == FAILED:
            failure = ElementTree.SubElement(case, "failure", message="; ".join(verdict.differences))
            failure.text = "\n".join([*verdict.differences, *verdict.story, replay(verdict)])
    ElementTree.ElementTree(suite).write(file, encoding="utf-8", xml_declaration=True)
