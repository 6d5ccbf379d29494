"""The model that checks and tools walk."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tools.emulators.workflows.definition import load
from tools.emulators.workflows.errors import DefinitionErrors
from tools.emulators.workflows.source import Mark

from .world import result

SOURCE = """\
main:
  params: [run]
  steps:
    - reserve:
        call: run_step
        args:
          step: reserve_stock
          run: ${run}
          input: {a: [1, "${run.id}"]}
        result: r
    - check:
        switch:
          - condition: ${r.ok}
            steps:
              - inner:
                  call: googleapis.storage.v1.buckets.get
                  args: {bucket: b}
    - fan:
        parallel:
          for:
            value: v
            in: ${r.items}
            steps:
              - each:
                  assign:
                    - x: ${run_step("pay", run, v)}
run_step:
  params: [step, run, input: null]
  steps:
    - post:
        try:
          call: http.post
          args:
            url: ${step}
            timeout: 330
        retry: ${http.default_retry}
        except:
          as: e
          steps:
            - again:
                raise: ${e}
"""


def test_every_step_is_walked_in_order_with_its_place() -> None:
    definition = load(SOURCE, "main.yaml", connectors=lambda name: None)
    steps = [step for step in definition.walk() if not step.inline]
    assert [(step.routine, step.name, step.kind) for step in steps] == [
        ("main", "reserve", "call"),
        ("main", "check", "switch"),
        ("main", "inner", "call"),
        ("main", "fan", "parallel"),
        ("main", "each", "assign"),
        ("run_step", "post", "try"),
        ("run_step", "again", "raise"),
    ]
    assert steps[0].at == Mark(4, 7)
    assert steps[4].at == Mark(24, 17)


def test_calls_show_their_arguments() -> None:
    definition = load(SOURCE, "main.yaml", connectors=lambda name: None)
    calls = [step.call for step in definition.walk() if step.call is not None]
    assert [call.name for call in calls] == ["run_step", "googleapis.storage.v1.buckets.get", "http.post"]
    first = calls[0]
    assert first.args["step"].constant() == "reserve_stock"
    assert first.args["step"].at == Mark(7, 17)
    assert first.places["step"] == Mark(7, 11)
    assert not first.args["input"].is_constant()
    with pytest.raises(ValueError, match="expressions"):
        first.args["input"].constant()
    assert first.result == "r"
    assert calls[2].args["timeout"].constant() == 330


def test_everything_that_is_called_is_found() -> None:
    definition = load(SOURCE, "main.yaml", connectors=lambda name: None)
    called = [(step.name, name) for step in definition.walk() for name, _ in step.called()]
    assert called == [
        ("reserve", "run_step"),
        ("inner", "googleapis.storage.v1.buckets.get"),
        ("each", "run_step"),
        ("post", "http.post"),
    ]


def test_parameters_have_their_defaults() -> None:
    params = load(SOURCE, connectors=lambda name: None).workflows["run_step"].params
    assert [(param.name, param.default is None) for param in params] == [
        ("step", True),
        ("run", True),
        ("input", False),
    ]


def test_a_connector_is_asked_for_by_its_full_name() -> None:
    asked: list[str] = []

    def answer(name: str) -> str | None:
        asked.append(name)
        return "not today"

    with pytest.raises(DefinitionErrors) as caught:
        load(SOURCE, "main.yaml", connectors=answer)
    assert asked == ["googleapis.storage.v1.buckets.get"]
    assert str(caught.value) == 'main.yaml:16:25: step "inner": not today'


def test_all_findings_come_at_once_in_order() -> None:
    source = "- one:\n    return: ${a}\n- two:\n    call: nowhere\n- three:\n    next: four\n"
    with pytest.raises(DefinitionErrors) as caught:
        load(source)
    assert [(finding.line, finding.step) for finding in caught.value.findings] == [(2, "one"), (4, "two"), (6, "three")]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda value: json.dumps(value), id="ascii"),
        pytest.param(lambda value: json.dumps(value, separators=(",", ":")), id="compact"),
        pytest.param(lambda value: json.dumps(value, indent="\t"), id="tabs"),
        pytest.param(lambda value: json.dumps(value, ensure_ascii=False).replace("/", "\\/"), id="slashes"),
        pytest.param(lambda value: json.dumps(value, indent=2).replace("\n", "\r\n"), id="crlf"),
    ],
)
def test_json_however_it_is_written(source: Callable[[object], str]) -> None:
    value = ["😀/ü", "http://x/y", "\\ud83d\\ude00", None, True, 1000.0, "", -5, {"a:b": "${1 + 1}"}]
    steps = [{"a": {"assign": [{"x": '${"a:" + "b/\\n"}'}]}}, {"b": {"return": [*value, "${x}"]}}]
    assert result(source({"main": {"steps": steps}})) == [*value[:-1], {"a:b": 2}, "a:b/\n"]
