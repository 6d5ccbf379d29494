"""Imports that the deployed function does not find, though the laptop does."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.check.conftest import TEMPLATE, Checked
from tools.check.findings import Finding
from tools.check.installed import brought

MAIN = "functions/reserve_stock/main.py"
REQUIREMENTS = "functions/reserve_stock/requirements.txt"
TEMPLATES = sorted(main.parent for main in TEMPLATE.glob("tools/step_templates/*/main.py"))
FUTURE = "from __future__ import annotations\n"


def added(checked: Checked, text: str) -> list[Finding]:
    """The findings once `text` stands among the imports of reserve_stock, which has no requirements of its own."""
    checked.edit(MAIN, FUTURE, FUTURE + text)
    return checked.findings()


def line_of(checked: Checked, words: str) -> int:
    return next(n for n, line in enumerate((checked.root / MAIN).read_text().splitlines(), 1) if words in line)


FOUND = {
    "the standard library": "import tomllib, xml.etree.ElementTree\nfrom concurrent.futures import wait\n",
    "a namespace": "import google.cloud\nfrom google import auth\n",
    "what the runtime's requirements need": "import grpc, requests\nfrom google.api_core.retry import Retry as R\n",
    "the runtime": "from exactly_once.identity import RunContext\nfrom exactly_once import *\n",
    "what may be missing": "try:\n    import yaml\nexcept (ImportError, OSError):\n    yaml = None\n",
    "what only a type checker reads": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import yaml\n",
}


@pytest.mark.parametrize("name", FOUND)
def test_what_the_function_finds(checked: Checked, name: str) -> None:
    assert added(checked, FOUND[name]) == []


MISSING = {
    "import yaml as y\n": f"Add PyYAML=={version('PyYAML')} to {REQUIREMENTS}",
    "from google.cloud import firestore, workflows_v1\n": "Add google-cloud-workflows==",
    "from google.cloud.workflows.executions_v1 import Execution\n": "Add google-cloud-workflows==",
    "import nowhere.at_all\n": f"Add what has it to {REQUIREMENTS}",
    "from functions.charge_orders import main as other\n": "Move what it needs into functions/reserve_stock",
    "try:\n    import yaml\nfinally:\n    pass\n": "Add PyYAML==",
    "try:\n    import json\nexcept ImportError:\n    import yaml\n": "Add PyYAML==",
}


@pytest.mark.parametrize("text", MISSING)
def test_what_it_does_not_find(checked: Checked, text: str) -> None:
    (found,) = added(checked, text)
    needle = next(line for line in text.splitlines() if "import" in line and "json" not in line and ":" not in line)
    assert (found.level, found.file, found.line) == ("error", MAIN, line_of(checked, needle))
    assert "reserve_stock" in found.what
    assert found.what.endswith("the revision would not start")
    assert found.change.startswith(MISSING[text])


def test_a_late_import_is_a_warning(checked: Checked) -> None:
    (found,) = added(checked, "def late():\n    import yaml\n")
    assert (found.level, found.line) == ("warning", line_of(checked, "import yaml"))
    assert "the step fails when it gets there" in found.what


def test_its_own_requirements_count_with_what_they_need(checked: Checked) -> None:
    assert len(added(checked, "import rich\nfrom markdown_it import MarkdownIt\n")) == 2
    (checked.root / REQUIREMENTS).write_text("# theirs\nrich==15.0.0  # pinned\n")
    assert checked.findings() == []


def test_a_module_beside_it_is_found_and_looked_at(checked: Checked) -> None:
    folder = checked.root / "functions/reserve_stock"
    (folder / "helper.py").write_text("import main\nimport inner.part\n\nimport yaml\n")
    (folder / "inner").mkdir()
    (found,) = added(checked, "from helper import divide as other\n")
    assert (found.level, found.file, found.line) == ("error", "functions/reserve_stock/helper.py", 4)


def test_what_is_not_installed_here_is_guessed_by_its_name_and_the_rest_is_a_warning(checked: Checked) -> None:
    lines = "left-out-one==1.0\ngoogle-cloud-leftout==1.0\nopencv-python-headless==0.0\n-r other.txt\n"
    (checked.root / REQUIREMENTS).write_text(lines)
    text = "import left_out_one.part\nfrom google.cloud import leftout_v1\nimport cv2\n"
    assert added(checked, text) == []
    (found,) = added(checked, "import left_out\n")
    assert found.level == "warning"
    assert "as far as can be seen, the revision would not start" in found.what
    assert "-r other.txt" in found.what


def test_extras_bring_what_they_name() -> None:
    assert brought(("PyJWT[crypto]==2.15.1",)).has("cryptography")
    assert not brought(("PyJWT==2.15.1",)).has("cryptography")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_every_kind_of_step_finds_its_imports(checked: Checked, template: Path) -> None:
    (checked.root / MAIN).write_text((template / "main.py").read_text())
    own = template / "requirements.txt"
    lines = own.read_text() if own.exists() else ""
    (checked.root / REQUIREMENTS).write_text(lines)
    if unknown := brought(tuple(lines.splitlines())).unknown:
        pytest.skip(f"not installed here: {', '.join(unknown)}")
    assert not [found for found in checked.findings() if "no requirements" in found.what]
