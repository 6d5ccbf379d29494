"""`./pipeline add-step`, `remove-step` and `list-templates`.

Everything is worked out before anything is written; what is refused has changed nothing, and a write that fails takes
back the ones before it.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import click

from tools import templates
from tools.errors import UserError
from tools.project import ROOT
from tools.settings import RESERVED as RESERVED_SETTINGS
from tools.settings import Settings, load, read, service_name
from tools.splice import Outline, SpliceError, add_after, add_at_end, add_parallel
from tools.splice import remove as cut_out
from tools.splice.edits import Entry
from tools.splice.outline import Step
from tools.splice.wiring import item_beside, plain_call, result_name, template_call, wire_input

WORKFLOW = "workflows/main.yaml"
SETTINGS = "settings.env"

NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
RESERVED = frozenset(
    "proxy main run run_step transient end break continue and or not in true false null if len keys int double string"
    " default get_type base64 events hash http json list map math retry sys text time uuid experimental"
    " googleapis".split()
)
"""Names that the chain (`proxy`), the workflow's own parts, its jumps or its language have already."""

URL_LABEL = 63
"""Characters of a host's label: Cloud Run's is SERVICE-PROJECTNUMBER; beyond it the service has another URL."""

NUMBER_DIGITS = 12
"""Of a project's number, which is not known here."""


class StepError(UserError):
    """A step cannot be added or removed; the text is one line, and nothing has been changed."""


@dataclass
class Plan:
    """New contents of files by path below the project; None: the file goes. `folders` go as a whole."""

    texts: dict[str, bytes | None] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    def show(self, root: Path) -> str:
        """A unified diff of what changes, and a line for each file that comes or goes."""
        parts = []
        for path, content in self.texts.items():
            file = root / path
            if content is None or not file.exists():
                parts.append(f"{'delete' if content is None else 'new'} {path}\n")
                continue
            old, new = _lines(file.read_bytes()), _lines(content)
            parts += difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
        parts += [f"delete {path}/\n" for path in self.folders]
        return "".join(part if part.endswith("\n") else part + "\n\\ No newline at end of file\n" for part in parts)

    def carry_out(self, root: Path) -> None:
        """Raises StepError, with everything as it was, if a file cannot be written."""
        with tempfile.TemporaryDirectory(dir=root, prefix=".step-") as room, contextlib.ExitStack() as undo:
            try:
                for number, (path, content) in enumerate(self.texts.items()):
                    self._put(root / path, content, Path(room) / str(number), undo)
                for number, path in enumerate(self.folders):
                    aside = Path(room) / f"folder{number}"
                    (root / path).rename(aside)
                    undo.callback(aside.rename, root / path)
            except OSError as error:
                where = error.filename2 or error.filename or root
                raise StepError(f"{where}: {error.strerror}; nothing has been changed") from None
            undo.pop_all()

    def _put(self, file: Path, content: bytes | None, aside: Path, undo: contextlib.ExitStack) -> None:
        for folder in reversed([parent for parent in file.parents if not parent.exists()]):
            folder.mkdir()
            undo.callback(folder.rmdir)
        if file.exists():
            shutil.copy2(file, aside)
            undo.callback(os.replace, aside, file)
        if content is None:
            file.unlink()
            return
        draft = aside.with_suffix(".new")
        draft.write_bytes(content)
        if aside.exists():
            shutil.copymode(aside, draft)
        draft.replace(file)
        if not aside.exists():
            undo.callback(file.unlink)


@dataclass(frozen=True)
class Wish:
    """What add-step was asked for."""

    name: str
    template: templates.Template
    after: str | None = None
    beside: str | None = None
    value: str | None = None


def plan_to_add(root: Path, wish: Wish) -> Plan:
    """Raises UserError for what cannot be done."""
    settings = load(root)
    _check_name(root, settings, wish.name)
    text = _read(root / WORKFLOW)
    try:
        new = _with_call(Outline(text, WORKFLOW), wish)
    except SpliceError as error:
        raise StepError(str(error)) from None
    _check_workflow(text, new)
    plan = Plan(dict(wish.template.files(wish.name)))
    plan.texts[WORKFLOW] = new.encode()
    added = _new_settings(root, settings, wish)
    if added:
        old = (root / SETTINGS).read_bytes()
        gap = b"" if not old or old.endswith(b"\n") else b"\n"
        plan.texts[SETTINGS] = old + gap + b"\n" + added.encode()
    return plan


def plan_to_remove(root: Path, name: str) -> Plan:
    """Raises UserError for what cannot be done."""
    settings = load(root)
    if name not in settings.steps:
        known = ", ".join(settings.steps) or "none"
        raise StepError(f"there is no step {name}; the project has: {known}")
    text = _read(root / WORKFLOW)
    try:
        new = cut_out(Outline(text, WORKFLOW), name)
    except SpliceError as error:
        raise StepError(str(error)) from None
    _check_workflow(text, new)
    plan = Plan({WORKFLOW: new.encode()}, [f"functions/{name}"])
    if (root / f"tests/test_{name}.py").exists():
        plan.texts[f"tests/test_{name}.py"] = None
    left = _settings_without(root, settings, name)
    if left is not None:
        plan.texts[SETTINGS] = left
    return plan


def _with_call(outline: Outline, wish: Wish) -> str:
    if outline.parameter is None:
        raise SpliceError(f"{outline.file}: main takes no run: it needs `params: [run]`, which every step is given")
    anchor = _anchor(outline, wish)
    item = item_beside(anchor) if anchor else None
    value = wish.value
    if value is not None and not value.startswith("${"):
        place = anchor.within if anchor else outline.main
        before = _position(outline, anchor, wish)
        value, outline = wire_input(outline, value, place, before)
        anchor = _anchor(outline, wish)  # the outline may be a new one
    entry = _entry(outline, wish, value, item)
    if anchor is None:
        return add_at_end(outline, entry)
    return add_parallel(outline, anchor, entry) if wish.beside else add_after(outline, anchor, entry)


def _anchor(outline: Outline, wish: Wish) -> Step | None:
    name = wish.after or wish.beside
    return outline.find(name) if name else None


def _position(outline: Outline, anchor: Step | None, wish: Wish) -> int:
    """Where in the text the new step will come."""
    if anchor is None:
        return len(outline.text)
    node = anchor.node
    return int(node.start_mark.index if wish.beside else node.end_mark.index)


def _entry(outline: Outline, wish: Wish, value: str | None, item: str | None) -> Entry:
    text, run = wish.template.call(), str(outline.parameter)
    if text is None:
        return plain_call(wish.name, run, value or "null", item, result_name(outline, wish.name))
    if item is not None:
        raise SpliceError(f"the template {wish.template.name} has a loop of its own: choose a place outside the loop")
    return template_call(text, wish.template.name, wish.name, run, value)


def _check_name(root: Path, settings: Settings, name: str) -> None:
    if not NAME.fullmatch(name):
        raise StepError(f"{name!r} is no name for a step: up to 31 of a-z, 0-9 and _, a letter first")
    if name in RESERVED:
        raise StepError(f"{name} is reserved for the chain or for the workflow's language: take another name")
    if name.endswith("_"):
        raise StepError(f"{name}: a service's name cannot end in a dash, so a step's cannot end in _")
    service = service_name(settings.pipeline, name)
    label = len(service) + 1 + NUMBER_DIGITS
    if label > URL_LABEL:
        raise StepError(
            f"{name} is {label - URL_LABEL} too long: the service's URL starts {service}-PROJECTNUMBER,"
            f" {label} of at most {URL_LABEL} characters"
        )
    for path in (f"functions/{name}", f"tests/test_{name}.py"):
        if (root / path).exists():
            raise StepError(f"{path} is there already: take another name, or remove it first")
    for taken in settings.steps:
        if service_name(settings.pipeline, taken) == service:
            raise StepError(f"{name} and {taken} would be one service, {service}: take another name")
    try:
        outline = Outline(_read(root / WORKFLOW), WORKFLOW)
    except SpliceError as error:
        raise StepError(str(error)) from None
    for step in outline.walk():
        if step.name == name:
            raise StepError(f"{WORKFLOW}:{step.line} has a step named {name} already: take another name")


def _check_workflow(old: str, new: str) -> None:
    """Workflows would refuse nothing of the new text that it does not refuse of the old one."""
    from tools.emulators.workflows.definition import load as load_definition
    from tools.emulators.workflows.errors import DefinitionErrors

    def findings(text: str) -> list[str]:
        try:
            load_definition(text, WORKFLOW, connectors=lambda _: None)
        except DefinitionErrors as error:
            return [str(finding) for finding in error.findings]
        return []

    if old_findings := findings(old):
        raise StepError(f"{old_findings[0]}: the workflow cannot be deployed as it is; correct this first")
    if new_findings := findings(new):
        raise StepError(f"{WORKFLOW} could not be deployed with this change ({new_findings[0]}): make it by hand")


def _new_settings(root: Path, settings: Settings, wish: Wish) -> str:
    """The template's settings that the project does not have yet."""
    text = wish.template.settings(wish.name)
    names = [line.partition("=")[0] for line in text.splitlines() if line and not line.startswith("#")]
    if reserved := [name for name in names if name in RESERVED_SETTINGS]:
        raise StepError(
            f"{wish.name} would need a setting {reserved[0]}, which functions get anyway: take another name"
        )
    if taken := [name for name in names if name in settings.entries]:
        raise StepError(f"{SETTINGS} has {taken[0]} already: take another name for the step, or delete that line")
    return text


def _settings_without(root: Path, settings: Settings, name: str) -> bytes | None:
    """settings.env without what only this step uses and is named after it; None if there is nothing of the kind."""
    step = settings.steps[name]
    used = {
        key for other in settings.steps.values() if other is not step for key in (*other.settings, *other.receivers)
    }
    entries = read(root / SETTINGS, root)
    gone = [
        entries[key].line - 1
        for key in (*step.settings, *step.receivers)
        if key.startswith(f"{name.upper()}_") and key in entries and key not in used
    ]
    if not gone:
        return None
    lines = (root / SETTINGS).read_bytes().splitlines(keepends=True)
    return b"".join(line for number, line in enumerate(lines) if number not in _with_comments(lines, gone))


def _with_comments(lines: list[bytes], gone: list[int]) -> set[int]:
    """With the comment right above and the blank line before it, if nothing else stands under that comment."""
    cut = set(gone)
    top = min(gone)
    if all(number in cut for number in range(top, max(gone) + 1)):
        after = lines[max(gone) + 1] if max(gone) + 1 < len(lines) else b"\n"
        if not after.strip():
            while top > 0 and lines[top - 1].startswith(b"#"):
                top -= 1
            if top > 0 and not lines[top - 1].strip():
                top -= 1
            cut |= set(range(top, min(gone)))
    return cut


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        raise StepError(f"{file.name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StepError(f"{file.name} is not UTF-8") from None


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "replace").splitlines(keepends=True)


@click.command("add-step")
@click.argument("name")
@click.option("--template", "asked", required=True, help="A built-in template (list-templates), or ./path of your own.")
@click.option("--after", metavar="STEP", help="Put the call behind this step. Default: at the end.")
@click.option("--parallel-with", "beside", metavar="STEP", help="Run side by side with this step.")
@click.option("--input", "value", metavar="STEP[.FIELD]", help="Its input: the result of an earlier step, or ${...}.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def add_step(name: str, asked: str, after: str | None, beside: str | None, value: str | None, dry_run: bool) -> None:
    """Add the step NAME: a function from a template, its test, its settings, and its call in the workflow."""
    if after and beside:
        raise click.UsageError("--after and --parallel-with exclude each other.")
    template = templates.find(asked)
    plan = plan_to_add(ROOT, Wish(name, template, after, beside, value))
    click.echo(plan.show(ROOT), nl=False)
    if dry_run:
        return
    plan.carry_out(ROOT)
    click.echo(f"\nAdded {name}. Now: edit functions/{name}/main.py, and ./pipeline test, ./pipeline demo.")
    if template.settings(name):
        click.echo(f"Before a deploy, give its settings in {SETTINGS} their values (functions/{name}/README.md).")


@click.command("remove-step")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def remove_step(name: str, dry_run: bool) -> None:
    """Remove the step NAME: its call in the workflow, its function, its test and its settings."""
    plan = plan_to_remove(ROOT, name)
    click.echo(plan.show(ROOT), nl=False)
    if not dry_run:
        plan.carry_out(ROOT)
        click.echo(
            f"\nRemoved {name}. Its records in Firestore stay until they expire, its service until you delete it."
        )


@click.command("list-templates")
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
def list_templates(folder: Path | None) -> None:
    """The built-in templates, and those of your own below FOLDER."""
    for template in [*templates.built_in(), *(templates.below(folder) if folder else [])]:
        name = template.name if template.folder.parent == templates.BUILT_IN else str(template.folder)
        click.echo(f"{name:<13} {template.about}")
