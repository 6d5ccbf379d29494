"""The language, as cases in data: each is a workflow, its argument, and its result, its error or its findings.

`cases/` holds one file a feature. A case gives `rule` (what of the documentation it shows), `workflow`, and of these
what it needs:

    argument, env         given to the execution
    http                  answers in order, or by `url`: code, headers, body, delay; or fails, a transport error
    callbacks             by method: [seconds until it arrives, what arrives]
    limits                changed limits
    result                what it returns
    raises                what the error's map holds at least; a string for an error that is one
    context               lines that the error's context holds
    findings              `line:column: text`, each found in a finding, and there are no others
    requests              what each HTTP request holds at least, in order
    log                   what each log entry holds at least
    elapsed               seconds that have passed on the clock
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.emulators.workflows import engine
from tools.emulators.workflows.definition import load
from tools.emulators.workflows.errors import DefinitionErrors
from tools.emulators.workflows.limits import Limits
from tools.emulators.workflows.runtime import LogEntry

from .world import ENV, START, Mailbox, Offspring, world

CASES = Path(__file__).parent / "cases"
KEYS = {
    *("rule", "workflow", "argument", "env", "http", "callbacks", "limits", "result", "raises", "context"),
    *("findings", "requests", "log", "elapsed"),
}


def cases() -> list[Any]:
    return [
        pytest.param(case, id=f"{path.stem}-{number}-{case['rule'][:60]}")
        for path in sorted(CASES.glob("*.yaml"))
        for number, case in enumerate(yaml.safe_load(path.read_text())["cases"], 1)
    ]


@pytest.mark.parametrize("case", cases())
def test_case(case: dict[str, Any]) -> None:
    assert set(case) <= KEYS, f"unknown keys {set(case) - KEYS}"
    assert set(case) & {"result", "raises", "findings"}, "a case says what comes out"
    if "findings" in case:
        check_findings(case)
    else:
        check_outcome(case)


def check_findings(case: dict[str, Any]) -> None:
    with pytest.raises(DefinitionErrors) as caught:
        load(case["workflow"], "w.yaml")
    found = [str(finding).removeprefix("w.yaml:") for finding in caught.value.findings]
    for expected in case["findings"]:
        place, _, text = expected.partition(": ")
        assert any(one.startswith(f"{place}:") and text in one for one in found), (expected, found)
    assert len(found) == len(case["findings"]), found


def check_outcome(case: dict[str, Any]) -> None:
    limits = Limits(**case.get("limits", {}))
    made, transport, clock = world(case.get("http"), limits=limits)
    made.callbacks = Mailbox(clock, {method: tuple(arrival) for method, arrival in case.get("callbacks", {}).items()})
    made.children = Offspring({"double": lambda argument: argument["n"] * 2, "echo": lambda argument: argument})
    entries: list[LogEntry] = []
    made.log = entries.append
    definition = load(case["workflow"], "w.yaml", connectors=lambda name: None)
    outcome = engine.execute(definition, case.get("argument"), made, env={**ENV, **case.get("env", {})})
    if "raises" in case:
        assert outcome.raised is not None, f"it succeeded with {outcome.result_json}"
        holds(outcome.raised.payload, case["raises"])
    else:
        assert outcome.error is None, outcome.error
        same(outcome.result, case["result"])
    assert outcome.error is None or all(line in outcome.error.context for line in case.get("context", []))
    if "requests" in case:
        assert len(transport.requests) == len(case["requests"])
        for request, expected in zip(transport.requests, case["requests"], strict=True):
            holds(described(request), expected)
    if "log" in case:
        assert len(entries) == len(case["log"])
        for entry, expected in zip(entries, case["log"], strict=True):
            holds(vars(entry), expected)
    if "elapsed" in case:
        assert clock.now() - START == pytest.approx(case["elapsed"], abs=1e-3)


def described(request: engine.Request) -> dict[str, Any]:
    auth = vars(request.auth) | {"scopes": list(request.auth.scopes)} if request.auth else None
    return vars(request) | {"auth": auth, "body": request.body.decode() if request.body is not None else None}


def same(value: Any, expected: Any) -> None:
    """Equal, and of the same types all the way down."""
    assert type(value) is type(expected), (value, expected)
    if isinstance(expected, dict):
        assert value.keys() == expected.keys(), (value, expected)
        for key, item in expected.items():
            same(value[key], item)
    elif isinstance(expected, list):
        assert len(value) == len(expected), (value, expected)
        for one, other in zip(value, expected, strict=True):
            same(one, other)
    else:
        assert value == expected


def holds(value: Any, expected: Any) -> None:
    """Maps may hold more than is expected; everything else is the same."""
    if not isinstance(expected, dict):
        same(value, expected)
        return
    for key, item in expected.items():
        assert key in value, (key, value)
        holds(value[key], item)
