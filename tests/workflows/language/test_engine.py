"""What the cases in data cannot show: the engine's edges to the world, and sizes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tools.emulators.clock import JumpClock, OffsetFile, SystemClock
from tools.emulators.workflows import engine, errors
from tools.emulators.workflows.definition import load
from tools.emulators.workflows.limits import Limits
from tools.emulators.workflows.runtime import CallEvent, Request, Response, StepEvent, Stop
from tools.emulators.workflows.values import Value

from .world import ENV, START, VirtualClock, result, run, world

LOOP = """
- init:
    assign: [{n: 0}]
- loop:
    for:
      value: v
      range: [1, 3]
      steps:
        - add:
            assign: [{n: "${n + v}"}]
- done:
    return: ${n}
"""
RETRIES = """
main:
  steps:
    - block:
        try:
          call: http.get
          args: {url: "https://a.example"}
        retry:
          predicate: ${retry.always}
          max_retries: 10080
          backoff: {initial_delay: 1, max_delay: 60, multiplier: 2}
"""
SLEEPER = """
- one:
    call: sys.sleep
    args: {seconds: 1000}
- two:
    return: 1
"""


def test_a_week_of_retries_takes_no_time() -> None:
    made, transport, clock = world([{"code": 500}])
    outcome = engine.execute(load(RETRIES), None, made, env=ENV)
    assert outcome.state == "FAILED"
    assert len(transport.requests) == 10_081
    assert clock.now() - START == 1 + 2 + 4 + 8 + 16 + 32 + 10_074 * 60


def test_a_definition_runs_as_often_as_one_likes() -> None:
    definition = load(LOOP)
    made, _, _ = world()
    assert [engine.execute(definition, None, made, env={}).result for _ in range(3)] == [6, 6, 6]


def test_steps_are_observed_at_entry_and_end() -> None:
    made, _, _ = world()
    seen: list[StepEvent] = []
    made.observe = seen.append
    engine.execute(load(LOOP), None, made, env={})
    names = [(event.step, event.kind, event.state) for event in seen]
    assert names[:4] == [
        ("init", "assign", "IN_PROGRESS"),
        ("init", "assign", "SUCCEEDED"),
        ("loop", "for", "IN_PROGRESS"),
        ("add", "assign", "IN_PROGRESS"),
    ]
    assert names[-2:] == [("done", "return", "IN_PROGRESS"), ("done", "return", "SUCCEEDED")]
    assert len({event.id for event in seen}) == 6  # init, loop, 3 x add, done


def test_a_failed_step_is_observed_with_its_error() -> None:
    made, _, _ = world()
    seen: list[StepEvent] = []
    made.observe = seen.append
    engine.execute(load("- one:\n    raise: wrong\n"), None, made, env={})
    assert seen[-1].state == "FAILED"
    assert seen[-1].error is not None and seen[-1].error.payload == "wrong"


def test_calls_are_told_with_arguments_and_what_came_of_them() -> None:
    made, _, _ = world([{"code": 200}, {"code": 500}])
    calls: list[CallEvent] = []
    made.calls = calls.append
    source = """
- one:
    call: http.get
    args: {url: "https://a.example"}
- two:
    call: http.get
    args: {url: "https://b.example"}
"""
    engine.execute(load(source), None, made, env={})
    assert [(call.step, call.name, call.args) for call in calls] == [
        ("one", "http.get", {"url": "https://a.example"}),
        ("two", "http.get", {"url": "https://b.example"}),
    ]
    assert calls[0].result["code"] == 200
    assert calls[1].error is not None and calls[1].error.payload["code"] == 500


def test_a_sleeping_execution_can_be_cancelled() -> None:
    made, _, _ = world()
    made.clock = SystemClock()
    stop, outcomes = Stop(), list[engine.Outcome]()
    runner = threading.Thread(
        target=lambda: outcomes.append(engine.execute(load(SLEEPER), None, made, env={}, stop=stop))
    )
    runner.start()
    stop.set()
    runner.join(10)
    assert [outcome.state for outcome in outcomes] == ["CANCELLED"]


def test_a_cancelled_execution_takes_no_further_step() -> None:
    stop = Stop()
    made, transport, _ = world([{"code": 200}])
    made.observe = lambda event: stop.set() if event.step == "one" else None
    source = """
- one:
    assign: [{x: 1}]
- two:
    call: http.get
    args: {url: "https://a.example"}
"""
    assert engine.execute(load(source), None, made, env={}, stop=stop).state == "CANCELLED"
    assert transport.requests == []


def test_a_handler_does_not_catch_a_cancellation() -> None:
    stop = Stop()
    made, _, _ = world()
    made.observe = lambda event: stop.set() if event.step == "inner" else None
    source = """
- one:
    try:
      steps:
        - inner:
            assign: [{x: 1}]
        - wait:
            call: sys.sleep
            args: {seconds: 5}
    except:
      as: e
      steps:
        - give:
            return: caught
"""
    assert engine.execute(load(source), None, made, env={}, stop=stop).state == "CANCELLED"


def test_cancelling_wakes_every_branch() -> None:
    stop = Stop()
    made, _, clock = world()
    made.observe = lambda event: stop.set() if event.step == "last" else None
    source = """
- both:
    parallel:
      branches:
        - a:
            steps:
              - wait:
                  call: sys.sleep
                  args: {seconds: 1000}
        - b:
            steps:
              - wait2:
                  call: sys.sleep
                  args: {seconds: 10}
              - last:
                  assign: [{x: 1}]
"""
    assert engine.execute(load(source), None, made, env={}, stop=stop).state == "CANCELLED"
    assert clock.now() - START == 10


class Meeting:
    """Answers only when `count` requests are there at once."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=20)

    def request(self, request: Request) -> Response:
        self._barrier.wait()
        return Response(200, {}, b"")


def test_twenty_branches_really_run_side_by_side() -> None:
    source = """
- loop:
    parallel:
      for:
        value: v
        range: [1, 20]
        steps:
          - get:
              call: http.get
              args: {url: "https://a.example"}
"""
    made = engine.World(SystemClock(), Meeting(20))
    assert engine.execute(load(source), None, made, env={}).state == "SUCCEEDED"


def test_shared_variables_lose_no_update() -> None:
    source = """
- init:
    assign: [{n: 0}]
- loop:
    parallel:
      shared: [n]
      for:
        value: v
        range: [1, 20]
        steps:
          - many:
              for:
                value: w
                range: [1, 200]
                steps:
                  - add:
                      assign: [{n: "${n + 1}"}]
- done:
    return: ${n}
"""
    assert result(source) == 4000


def test_a_failure_of_the_emulator_in_a_branch_is_not_silent() -> None:
    class Broken:
        def request(self, request: Request) -> Response:
            raise RuntimeError("a bug")

    source = """
- loop:
    parallel:
      for:
        value: v
        range: [1, 3]
        steps:
          - get:
              call: http.get
              args: {url: "https://a.example"}
"""
    with pytest.raises(RuntimeError, match="a bug"):
        engine.execute(load(source), None, engine.World(VirtualClock(), Broken()), env={})


def test_time_jumps_over_sleep_on_the_clock_of_the_chain(tmp_path: Path) -> None:
    clock = JumpClock(OffsetFile(tmp_path / "offset"))
    made, _, _ = world()
    made.clock = clock
    source = """
- both:
    parallel:
      for:
        value: v
        range: [1, 3]
        steps:
          - wait:
              call: sys.sleep
              args:
                seconds: ${v * 100000}
"""
    began = clock.now()
    try:
        assert engine.execute(load(source), None, made, env={}).state == "SUCCEEDED"
        assert clock.now() - began >= 300_000
    finally:
        clock.stop()


def findings_of(source: str) -> list[str]:
    with pytest.raises(errors.DefinitionErrors) as caught:
        load(source, "w.yaml")
    return [str(finding) for finding in caught.value.findings]


def test_an_expression_of_400_characters_is_the_longest() -> None:
    longest = '${"' + "a" * 395 + '"}'
    assert len(longest) == 400
    assert result(f"- one:\n    return: '{longest}'\n") == "a" * 395
    found = findings_of("- one:\n    return: '" + longest.replace("${", "${ ") + "'\n")
    assert found == ["w.yaml:2:13: the expression has 401 characters, more than 400: split it over variables"]


def test_a_source_of_128_kib_is_the_largest() -> None:
    body = "- one:\n    return: 1\n#"
    load(body + "x" * (128 * 1024 - len(body)))
    assert "larger than 131072 bytes" in findings_of(body + "x" * (128 * 1024 - len(body) + 1))[0]


def test_a_string_of_256_kib_is_the_longest() -> None:
    source = """
- init:
    assign: [{s: aaaaaaaaaaaaaaaa}]
- loop:
    for:
      value: v
      range: [1, 14]
      steps:
        - grow:
            assign: [{s: "${s + s}"}]
- done:
    assign: [{n: "${len(s)}"}, {s: "EXTRA"}]
- give:
    return: ${n}
"""
    assert result(source.replace("EXTRA", "x")) == 256 * 1024
    outcome = run(source.replace("EXTRA", '${s + \\"a\\"}'))
    assert outcome.raised is not None and outcome.raised.tags() == ["ResourceLimitError"]


def test_a_result_of_512_kib_is_the_largest() -> None:
    source = """
main:
  params: [s]
  steps:
    - give:
        return: ["${s}", "${s}", "${s}"]
"""
    big: Value = "a" * (200 * 1024)
    outcome = run(source, big)
    assert outcome.raised is not None and outcome.raised.tags() == ["ResourceLimitError"]
    assert run(source.replace(', "${s}", "${s}"', ', "${s}"'), big).state == "SUCCEEDED"


def test_the_default_limit_of_steps() -> None:
    loop = """
- loop:
    for:
      value: v
      range: [1, LAST]
      steps:
        - go:
            assign: [{x: 1}]
"""
    assert run(loop.replace("LAST", "99999")).state == "SUCCEEDED"
    outcome = run(loop.replace("LAST", "100000"))
    assert outcome.raised is not None and outcome.raised.tags() == ["ResourceLimitError"]


def test_one_slot_is_enough_for_nested_parallel_steps() -> None:
    source = """
- init:
    assign: [{n: 0}]
- outer:
    parallel:
      shared: [n]
      for:
        value: v
        range: [1, 4]
        steps:
          - inner:
              parallel:
                shared: [n]
                for:
                  value: w
                  range: [1, 4]
                  steps:
                    - wait:
                        call: sys.sleep
                        args: {seconds: 1}
                    - add:
                        assign: [{n: "${n + 1}"}]
- done:
    return: ${n}
"""
    for concurrency, least, most in ((1, 16, 16), (4, 4, 7), (20, 1, 1)):  # which branch gets a slot first is open
        made, _, clock = world(limits=Limits(concurrency=concurrency))
        outcome = engine.execute(load(source), None, made, env={})
        assert outcome.result == 16
        assert least <= clock.now() - START <= most


def test_a_source_that_is_nested_too_deeply() -> None:
    assert "nesting depth" in findings_of("[" * 60_000)[0]
    assert "nested more than 200 levels deep" in findings_of("- a:\n    return: " + "[" * 300 + "]" * 300)[0]


def test_an_expression_may_be_nested_as_deeply_as_it_is_long() -> None:
    assert result("- a:\n    return: ${" + "(" * 198 + "1" + ")" * 198 + "}\n") == 1
    assert result("- a:\n    return: ${" + "not " * 98 + "true}\n") is True


def test_a_value_that_is_nested_too_deeply() -> None:
    source = """
- init:
    assign: [{l: []}]
- loop:
    for:
      value: v
      range: [1, 10000]
      steps:
        - wrap:
            assign: [{l: "${[l]}"}]
"""
    outcome = run(source)
    assert outcome.raised is not None and outcome.raised.tags() == ["ResourceLimitError"]


def test_twenty_workflows_deep_through_many_blocks() -> None:
    inner = "return: ${if(n == 0, n, 0)}"
    body = ["- call:", "    call: down", "    args: {n: '${n - 1}'}", "    result: r"]
    for level in range(12):
        body = [f"- b{level}:", "    steps:", *(f"      {line}" for line in body)]
    lines = [
        *("main:", "  steps:", "    - one:", "        return: ${down(18)}", "down:", "  params: [n]", "  steps:"),
        *("    - check:", "        switch:", "          - condition: ${n == 0}", f"            {inner}"),
        *(f"    {line}" for line in body),
        *("    - done:", "        return: ${r}"),
    ]
    assert result("\n".join(lines)) == 0


def test_a_switch_of_50_conditions_is_the_largest() -> None:
    conditions = ["    - {condition: false, return: 0}"] * 49 + ["    - {condition: true, return: 50}"]
    assert result("\n".join(["- one:", "    switch:", *conditions])) == 50
    found = findings_of("\n".join(["- one:", "    switch:", *conditions, conditions[0]]))
    assert found == ['w.yaml:3:5: step "one": switch has 51 conditions: 1 to 50 are allowed']


def test_all_variables_together_take_512_kib_at_most() -> None:
    source = """
main:
  params: [s]
  steps:
    - copies:
        assign: [{a: "${s}"}, {b: "EXTRA"}]
    - give:
        return: ${len(b)}
"""
    big: Value = "a" * (200 * 1024)
    assert run(source.replace("EXTRA", "x"), big).result == 1
    outcome = run(source.replace("EXTRA", "${s}"), big)
    assert outcome.raised is not None and outcome.raised.tags() == ["ResourceLimitError"]


def test_a_response_of_2_mib_is_the_largest() -> None:
    class Large:
        def __init__(self, size: int) -> None:
            self.size = size

        def request(self, request: Request) -> Response:
            return Response(200, {"content-type": "application/octet-stream"}, b"a" * self.size)

    source = """
- one:
    try:
      call: http.get
      args: {url: "https://a.example"}
    except:
      as: e
      steps:
        - give:
            return: caught
"""
    definition = load(source)
    limit = 2 * 1024 * 1024
    fits = engine.execute(definition, None, engine.World(VirtualClock(), Large(limit)), env={})
    assert fits.state == "SUCCEEDED" and fits.result is None
    too_large = engine.execute(definition, None, engine.World(VirtualClock(), Large(limit + 1)), env={})
    assert too_large.raised is not None and too_large.raised.tags() == ["ResourceLimitError"]
