"""Step templates: folders of plain Python that `add-step` copies into functions/.

    main.py  step.env  requirements.txt  test_step.py  README.md      of every template
    settings.env              lines for the project's settings.env
    call.yaml                 the call in the workflow, where it is more than one call of run_step
    requirements-laptop.txt   what only the laptop needs

In step.env, settings.env and call.yaml the template's own name stands for the step's (HTTP_URL of the template `http`
becomes CHARGE_URL for the step `charge`); Python files are copied as they are and learn their name from STEP.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tools.errors import UserError

BUILT_IN = Path(__file__).parent / "step_templates"
NEEDED = ("main.py", "step.env", "test_step.py")
NOT_COPIED = ("test_step.py", "settings.env", "call.yaml", "step.env")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


class TemplateError(UserError):
    """A template cannot be used; the text is one line."""


@dataclass(frozen=True)
class Template:
    """One template and where it lies."""

    name: str
    folder: Path

    @property
    def about(self) -> str:
        """The first paragraph of its README, without the heading, on one line."""
        try:
            text = (self.folder / "README.md").read_text(encoding="utf-8")
        except OSError:
            return ""
        paragraphs = [part for part in text.split("\n\n") if part.strip() and not part.startswith("#")]
        return " ".join(paragraphs[0].split()) if paragraphs else ""

    def files(self, step: str) -> dict[str, bytes]:
        """What goes into the project for the step: path below the project -> content."""
        made = {
            f"functions/{step}/{path.relative_to(self.folder)}": path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.name not in NOT_COPIED and "__pycache__" not in path.parts
        }
        made[f"functions/{step}/step.env"] = self._named("step.env", step).encode()
        made[f"tests/test_{step}.py"] = (self.folder / "test_step.py").read_bytes()
        return made

    def settings(self, step: str) -> str:
        """Lines for the project's settings.env; "" if there are none."""
        return self._named("settings.env", step) if (self.folder / "settings.env").exists() else ""

    def call(self) -> str | None:
        """The text of call.yaml."""
        file = self.folder / "call.yaml"
        return file.read_text(encoding="utf-8") if file.exists() else None

    def _named(self, file: str, step: str) -> str:
        text = (self.folder / file).read_text(encoding="utf-8")
        return re.sub(rf"\b{self.name.upper()}_", f"{step.upper()}_", text)


def find(asked: str) -> Template:
    """The built-in template of this name, or the one in the folder ./path. Raises TemplateError."""
    path = BUILT_IN / asked if _NAME.fullmatch(asked) and (BUILT_IN / asked).is_dir() else Path(asked)
    if not path.is_dir():
        names = ", ".join(template.name for template in built_in())
        raise TemplateError(f"no template {asked}: take one of {names}, or ./path of a folder of your own")
    template = Template(path.resolve().name, path.resolve())
    missing = [name for name in NEEDED if not (path / name).is_file()]
    if missing:
        raise TemplateError(f"{asked} is no template: it has no {', no '.join(missing)}")
    if not _NAME.fullmatch(template.name):
        raise TemplateError(f"{asked}: a template's folder has a name like a step's: a-z, 0-9 and _")
    return template


def built_in() -> list[Template]:
    """In order of name."""
    return below(BUILT_IN)


def below(folder: Path) -> list[Template]:
    """Every template right below a folder."""
    found = sorted(path.parent for path in folder.glob("*/main.py") if (path.parent / "step.env").is_file())
    return [Template(path.name, path.resolve()) for path in found]
