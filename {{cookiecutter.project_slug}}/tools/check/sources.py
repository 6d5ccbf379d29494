"""The functions' code, as far as it can be seen without running it: no effect outside the decorator's protection.

What is looked at is each functions/<step>/main.py by itself. It is a look at the usual forms, not a proof.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tools.check.findings import Finding, Level, Project
from tools.settings import Step

DECORATORS = ("step", "transactional_step", "chunk_step")
WRITES = frozenset("set update create delete add commit".split())
SENDS = frozenset("post put patch delete request send_message sendmail urlopen".split())
CLIENTS = frozenset("requests httpx urllib smtplib".split())
CLOCKS = {("datetime", "now"), ("datetime", "today"), ("datetime", "utcnow"), ("date", "today"), ("time", "time")}


@dataclass(frozen=True)
class _Main:
    """The entry point: its decorator, and the names of its transaction's parameter ("" without one)."""

    function: ast.FunctionDef
    decorator: str
    transaction: str


def sources(project: Project) -> Iterator[Finding]:
    """What each step's code does that its decorator cannot protect."""
    for step in project.settings.steps.values():
        yield from _source(step)


def holds_a_lease(step: Step) -> bool:
    """Whether the step claims with a lease: every kind but a transactional one."""
    tree = _parsed(step)
    main = _main(tree) if isinstance(tree, ast.Module) else None
    return main is None or main.decorator != "transactional_step"


def extends_its_lease(step: Step) -> bool:
    """Whether its code calls `.extend()`, so that a short lease may be meant."""
    tree = _parsed(step)
    return isinstance(tree, ast.Module) and any(_method(node) == "extend" for node in ast.walk(tree))


def _parsed(step: Step) -> ast.Module | SyntaxError:
    try:
        return ast.parse((step.folder / "main.py").read_text())
    except SyntaxError as error:
        return error


def _source(step: Step) -> Iterator[Finding]:
    file = f"functions/{step.name}/main.py"
    tree = _parsed(step)
    if isinstance(tree, SyntaxError):
        yield Finding(
            "error", file, tree.lineno or 1, f"this is not Python ({tree.msg}): {step.name} does not start", "Mend it"
        )
        return
    main = _main(tree)
    if main is None:
        line = next((node.lineno for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"), 1)
        yield Finding(
            "error",
            file,
            line,
            f"main of {step.name} has none of the decorators {', '.join('@' + name for name in DECORATORS)}: every "
            f"repeat does its work again",
            "Decorate main with the one that fits its effect",
        )
        return
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for node in ast.walk(statement):
                if _writes_firestore(node, frozenset(), _references(tree)) or _sends(node):
                    yield Finding(
                        "error",
                        file,
                        node.lineno,  # type: ignore[attr-defined]
                        f"{step.name} changes something while its module is imported: that happens at every start "
                        f"of an instance",
                        "Move it into main",
                    )
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        yield from _function(step, file, main, function)


def _function(step: Step, file: str, main: _Main, function: ast.FunctionDef) -> Iterator[Finding]:
    transactional = main.decorator == "transactional_step"
    safe = frozenset({main.transaction, "transaction"} - {""})
    references = _references(function)
    for node in _own(function):
        if transactional and _writes_firestore(node, safe, references):
            yield _at(
                file,
                node,
                "error",
                f"{step.name} writes outside its transaction: the write happens again whenever the body runs "
                f"again, also when the transaction fails",
                f"Write through the transaction: {main.transaction or 'transaction'}.set(reference, ...)",
            )
        if transactional and _sends(node):
            yield _at(
                file,
                node,
                "error",
                f"{step.name} reaches outside from within a transaction, whose body may run several times: the "
                f"effect doubles",
                "Make that a step of its own with @step",
            )
        if not transactional and _call_name(node) == "Increment":
            yield _at(
                file,
                node,
                "error",
                f"{step.name} counts with Increment outside a transaction: a repeat, even the client's own, counts "
                f"twice",
                "Count in a step with @transactional_step",
            )
        if not transactional and _sends(node) and not _has_keyword(node, "timeout"):
            yield _at(
                file,
                node,
                "error",
                f"a call of {step.name} has no time-out of its own: it can outlast the lease and have its effect "
                f"while another attempt is at work",
                f"Pass timeout= well below LEASE ({step.lease} s)",
            )
        if _is_clock(node):
            yield _at(
                file,
                node,
                "warning",
                f"{step.name} looks at the clock: a repeat or a late run sees another time, and its result differs",
                "Use run.slot, which is the same in every repeat",
            )


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, without those of the functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def _at(file: str, node: ast.AST, level: Level, what: str, change: str) -> Finding:
    return Finding(level, file, getattr(node, "lineno", 1), what, change)


def _main(tree: ast.Module) -> _Main | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "main":
            for decorator in node.decorator_list:
                name = _name(decorator.func if isinstance(decorator, ast.Call) else decorator)
                if name in DECORATORS:
                    first = node.args.args[0].arg if node.args.args and name == "transactional_step" else ""
                    return _Main(node, name, first)
    return None


def _name(node: ast.AST) -> str:
    """The last name of `a.b.c` or `c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _call_name(node: ast.AST) -> str:
    return _name(node.func) if isinstance(node, ast.Call) else ""


def _method(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def _root(node: ast.AST) -> str:
    """The first name of a chain such as `requests.post` or `database().collection("x").document("y")`."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_reference(node: ast.AST, references: frozenset[str]) -> bool:
    """Whether an expression is a document, a collection or a batch, as far as its own text says."""
    if isinstance(node, ast.Name):
        return node.id in references
    return _method(node) in ("document", "collection", "batch", "bulk_writer")


def _references(scope: ast.AST) -> frozenset[str]:
    """Names that are assigned a document, a collection or a batch."""
    found: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and _is_reference(node.value, frozenset(found)):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(found)


def _writes_firestore(node: ast.AST, safe: frozenset[str], references: frozenset[str]) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES):
        return False
    return _root(node.func) not in safe and _is_reference(node.func.value, references)


def _sends(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return _name(node.func) in SENDS and (
        _root(node.func) in CLIENTS or _name(node.func) in ("urlopen", "send_message", "sendmail")
    )


def _has_keyword(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and any(keyword.arg in (name, None) for keyword in node.keywords)


def _is_clock(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return (_name(node.func.value), node.func.attr) in CLOCKS
