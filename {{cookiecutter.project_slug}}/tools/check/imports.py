"""Imports that the deployed function does not find: on the laptop every requirement of the project is installed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.check.findings import Finding, Project
from tools.check.installed import Brought, brought, distribution_of
from tools.settings import Step

RUNTIME = "exactly_once"
"""The one folder of the project that is deployed beside each function's own."""


@dataclass(frozen=True)
class _Import:
    """`names`: what has to be found, dotted; `late`: only when a function gets there."""

    text: str
    names: tuple[str, ...]
    line: int
    late: bool


def imports(project: Project) -> Iterator[Finding]:
    """What each step's main.py, and the modules beside it that it needs, import and nothing installs."""
    for step in project.settings.steps.values():
        yield from _of_step(project.root, step)


def _of_step(root: Path, step: Step) -> Iterator[Finding]:
    files = (root / RUNTIME / "requirements.txt", step.folder / "requirements.txt")
    there = brought(tuple(line for file in files if file.exists() for line in file.read_text().splitlines()))
    waiting, seen = ["main"], {"main"}
    while waiting:
        file = step.folder / f"{waiting.pop()}.py"
        for found in _imports(_parsed(file), late=False):
            beside = {name.partition(".")[0] for name in found.names if _is_beside(step.folder, name)} - seen
            seen |= beside
            waiting += sorted(name for name in beside if (step.folder / f"{name}.py").exists())
            missing = next((name for name in found.names if not _is_found(step.folder, name, there)), None)
            if missing:
                yield _finding(root, step, file, found, missing, there)


def _finding(root: Path, step: Step, file: Path, found: _Import, missing: str, there: Brought) -> Finding:
    what = "the step fails when it gets there" if found.late else "the revision would not start"
    if there.unknown:
        what = f"as far as can be seen, {what} ({', '.join(there.unknown)} cannot be looked at here)"
    top, requirements = missing.partition(".")[0], f"functions/{step.name}/requirements.txt"
    if pinned := distribution_of(missing):
        change = f"Add {pinned} to {requirements}"
    elif (root / top).is_dir() or (root / f"{top}.py").exists():
        change = f"Move what it needs into functions/{step.name}: only that and {RUNTIME} are deployed"
    else:
        change = f"Add what has it to {requirements}"
    return Finding(
        "warning" if found.late or there.unknown else "error",
        file.relative_to(root).as_posix(),
        found.line,
        f"no requirements of {step.name} give what `{found.text}` needs: {what}",
        change,
    )


def _parsed(file: Path) -> ast.AST:
    """Its tree; empty if it is not Python, which the look at the sources tells."""
    try:
        return ast.parse(file.read_text())
    except SyntaxError:
        return ast.Module([], [])


def _is_beside(folder: Path, name: str) -> bool:
    top = name.partition(".")[0]
    return (folder / f"{top}.py").exists() or (folder / top).is_dir()


def _is_found(folder: Path, name: str, there: Brought) -> bool:
    top = name.partition(".")[0]
    return top == RUNTIME or top in sys.stdlib_module_names or _is_beside(folder, name) or there.has(name)


def _imports(node: ast.AST, late: bool) -> Iterator[_Import]:
    """The imports below `node`, without those that may fail (try) or never happen (TYPE_CHECKING)."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield _Import(f"import {alias.name}", (alias.name,), node.lineno, late)
    elif isinstance(node, ast.ImportFrom):
        if node.module and not node.level:
            names = [alias.name for alias in node.names]
            dotted = tuple(node.module if name == "*" else f"{node.module}.{name}" for name in names)
            yield _Import(f"from {node.module} import {', '.join(names)}", dotted, node.lineno, late)
    else:
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        skipped = _skipped(node)
        for child in ast.iter_child_nodes(node):
            if child not in skipped:
                yield from _imports(child, late)


def _skipped(node: ast.AST) -> list[ast.stmt]:
    if isinstance(node, ast.Try) and any(_catches_import_error(handler) for handler in node.handlers):
        return node.body
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return node.body
    return []


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind) if kind else "" for kind in kinds}
    return bool(names & {"", "ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
