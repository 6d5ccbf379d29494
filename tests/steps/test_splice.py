"""Editing a workflow file's text: what is put in, what stays, what is refused."""

from __future__ import annotations

import difflib

import pytest
import yaml

from tools.splice import Entry, Outline, SpliceError, add_after, add_at_end, add_parallel, remove

BLOCK = """\
# The chain.  Trailing spaces stay:   \n\
main:
  params: [run]
  steps:
    # takes stock
    - reserve_stock:
        call: run_step   # the call
        args: {step: reserve_stock, run: '${run}'}
        result: reserve_stock
        # its own comment

    # takes money
    - charge_orders:
        parallel:
          concurrency_limit: 10
          for:
            value: order
            in: ${reserve_stock.orders}
            steps:
              - charge_order:
                  call: run_step
                  args:
                    step: charge_orders
                    run: ${run}
                    item: ${order.id}
                    input: ${order}

    - report:
        try:
          steps:
            - publish_report:
                call: run_step
                args:
                  step: publish_report
                  run: ${run}
                  input: |+
                    text with a blank line behind it

                result: published
        except:
          as: error
          steps:
            - fail:
                raise: ${error}
    - done:
        return: ${published}

run_step:
  params: [step, run, input: null, item: null]
  steps:
    - post:
        return: null
"""

INDENTLESS = """\
main:
    params: [ run ]
    steps:
    -   first:
            call: run_step
            args:
                step: first
                run: ${run}
    -
        second:
            assign:
            - x: "a: b # c"
            - y: "two
              lines"
            - z: 'it''s'
"""

FLOW = """\
{"main": {"params": ["run"], "steps": [
  {"first": {"call": "run_step", "args": {"step": "first", "run": "${run}"}, "result": "first"}},
  {"second": {"call": "run_step", "args": {"step": "second", "run": "${run}"}, "result": "second"}}
]}}
"""

BRANCHES = """\
main:
  params: [run]
  steps:
    - init_results:
        assign:
          - a: null
    - both:
        parallel:
          shared:
            - a
          branches:
            - one:
                steps:
                  - a_step:
                      call: run_step
                      args: {step: a, run: "${run}"}
                      result: a
            - two:
                steps: [{b_step: {call: run_step, args: {step: b, run: "${run}"}}}]
    - last:
        call: run_step
        args: {step: last, run: "${run}", input: "${a}"}
"""

LAYOUTS = {"block": BLOCK, "indentless": INDENTLESS, "flow": FLOW, "branches": BRANCHES}


def entry(name: str = "extra", result: str | None = "extra") -> Entry:
    lines = [f"- {name}:", "    call: run_step", "    args:", f"      step: {name}", "      run: ${run}"]
    return Entry(name, lines + ([f"    result: {result}"] if result else []), result)


def variants(text: str) -> dict[str, str]:
    return {
        "as it is": text,
        "CRLF": text.replace("\n", "\r\n"),
        "no last line break": text.rstrip("\n"),
        "CRLF, no last line break": text.rstrip("\n").replace("\n", "\r\n"),
        "byte order mark": "\ufeff" + text,
    }


def every_place() -> list[object]:
    return [
        pytest.param(text, step.name, id=f"{layout}-{variant}-{step.name}".replace(" ", "_"))
        for layout, original in LAYOUTS.items()
        for variant, text in variants(original).items()
        for step in Outline(text).walk()
    ]


def added_lines(old: str, new: str) -> list[str]:
    """The lines that are new; fails if one of the old ones is gone or changed."""
    diff = list(difflib.ndiff(old.splitlines(keepends=True), new.splitlines(keepends=True)))
    assert not [line for line in diff if line.startswith("- ")]
    return [line[2:] for line in diff if line.startswith("+ ")]


def test_a_step_is_put_behind_another_and_its_comments() -> None:
    outline = Outline(BLOCK)
    new = add_after(outline, outline.find("reserve_stock"), entry())
    assert new == BLOCK.replace(
        "        # its own comment\n",
        "        # its own comment\n    - extra:\n        call: run_step\n        args:\n          step: extra\n"
        "          run: ${run}\n        result: extra\n",
    )


@pytest.mark.parametrize(("text", "anchor"), every_place())
def test_adding_changes_no_other_byte_and_removing_restores_every_byte(text: str, anchor: str) -> None:
    outline = Outline(text)
    step = outline.find(anchor)
    try:
        new = add_after(outline, step, entry())
    except SpliceError as refused:
        assert "would never run" in str(refused)
        return
    at = next(i for i in range(len(new)) if i >= len(text) or new[i] != text[i])
    inserted = len(new) - len(text)
    assert any(new[:i] + new[i + inserted :] == text for i in range(max(0, at - inserted), at + 1)), "one piece put in"
    steps = Outline(new).find("extra")
    assert steps.within.steps[steps.index - 1].name == anchor
    assert ("\r\n" in new) == ("\r\n" in text)
    if "\r\n" in text:
        assert "\n" not in new.replace("\r\n", "")
    assert new.endswith("\n") == text.endswith("\n")
    assert remove(Outline(new), "extra") == text


@pytest.mark.parametrize(("text", "anchor"), every_place())
def test_side_by_side_and_back(text: str, anchor: str) -> None:
    outline = Outline(text)
    before = yaml.safe_load(text)
    try:
        new = add_parallel(outline, outline.find(anchor), entry())
    except SpliceError as refused:
        assert any(why in str(refused) for why in ("side by side", "inside one another", "does not begin", "by hand"))
        return
    made = Outline(new)
    extra, old = made.find("extra"), made.find(anchor)
    assert extra.within.kind == old.within.kind == "branch"
    assert extra.within.holder is old.within.holder
    assert ("\r\n" in new) == ("\r\n" in text)
    again = remove(made, "extra")
    assert yaml.safe_load(again) == before
    assert again.replace(" ", "") == text.replace(" ", "")  # a step that was moved in and out may lose odd indents


def test_side_by_side_and_back_is_byte_equal_in_the_usual_layout() -> None:
    for anchor in ("reserve_stock", "report", "charge_orders"):
        outline = Outline(BLOCK)
        assert remove(Outline(add_parallel(outline, outline.find(anchor), entry())), "extra") == BLOCK


def test_side_by_side_shares_what_both_set() -> None:
    outline = Outline(BLOCK)
    new = add_parallel(outline, outline.find("reserve_stock"), entry())
    steps = yaml.safe_load(new)["main"]["steps"]
    assert steps[0] == {"init_reserve_stock_and_extra": {"assign": [{"reserve_stock": None}, {"extra": None}]}}
    parallel = steps[1]["reserve_stock_and_extra"]["parallel"]
    assert parallel["shared"] == ["reserve_stock", "extra"]
    assert [list(branch) for branch in parallel["branches"]] == [["reserve_stock_branch"], ["extra_branch"]]


def test_a_branch_more() -> None:
    outline = Outline(BRANCHES)
    new = add_parallel(outline, outline.find("a_step"), entry())
    steps = yaml.safe_load(new)["main"]["steps"]
    assert [next(iter(step)) for step in steps] == ["init_results", "init_extra", "both", "last"]
    parallel = steps[2]["both"]["parallel"]
    assert parallel["shared"] == ["a", "extra"]
    assert [next(iter(branch)) for branch in parallel["branches"]] == ["one", "extra_branch", "two"]
    added_lines(BRANCHES, new)
    assert remove(Outline(new), "extra") == BRANCHES


def test_the_end_is_before_the_return() -> None:
    new = add_at_end(Outline(BLOCK), entry())
    names = [next(iter(step)) for step in yaml.safe_load(new)["main"]["steps"]]
    assert names == ["reserve_stock", "charge_orders", "report", "extra", "done"]
    only = "main:\n  params: [run]\n  steps:\n    - done:\n        return: null\n"
    new = add_at_end(Outline(only), entry())
    assert [next(iter(step)) for step in yaml.safe_load(new)["main"]["steps"]] == ["extra", "done"]
    assert remove(Outline(new), "extra") == only


def test_a_loop_goes_with_the_only_call_in_it() -> None:
    new = remove(Outline(BLOCK), "charge_orders")
    assert [next(iter(step)) for step in yaml.safe_load(new)["main"]["steps"]] == ["reserve_stock", "report", "done"]
    assert "# takes money" in new  # what somebody wrote between the steps stays


def test_a_function_is_found_by_its_loop() -> None:
    text = BLOCK.replace("- charge_orders:", "- money:")
    assert Outline(text).find("charge_orders").name == "money"


@pytest.mark.parametrize(
    ("text", "function", "why"),
    [
        (BLOCK, "reserve_stock", "main.yaml:18: reserve_stock is used here"),
        (BLOCK, "publish_report", "report would be left without steps"),
        (BLOCK, "nothing", "does not call nothing"),
        (BRANCHES, "a", "main.yaml:22: a is used here"),
        ("main:\n  params: [run]\n  steps:\n  - a: {call: run_step, args: {step: a}}\n", "a", "no step left"),
        (
            "main:\n  params: [run]\n  steps:\n  - x: {switch: [{condition: true, next: a}]}\n"
            "  - y: {return: 1}\n  - a: {call: run_step, args: {step: a}}\n",
            "a",
            "main.yaml:4: `next` jumps to a",
        ),
        (
            BLOCK + "other:\n  steps:\n    - c:\n        call: run_step\n        args: {step: charge_orders}\n",
            "charge_orders",
            "main.yaml:56: the subworkflow other calls charge_orders",
        ),
    ],
)
def test_what_cannot_be_removed(text: str, function: str, why: str) -> None:
    with pytest.raises(SpliceError) as refused:
        remove(Outline(text), function)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("main: [", "main.yaml:1"),
        ("main:\n\tsteps: []\n", "main.yaml:2"),
        ("- a:\n    return: 1\n", "no `main:`"),
        ("main:\n  steps: x\n", "no `main:`"),
        ("main:\n  steps:\n    - a: &x {return: 1}\n    - b: *x\n", "anchors"),
        ("main:\n  steps:\n    - just text\n", "main.yaml:3: a step is a map"),
        ("main:\n  steps: []\n---\nmain: {}\n", "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_edited(text: str, why: str) -> None:
    with pytest.raises(SpliceError) as refused:
        Outline(text)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_names_that_stand_for_nothing_or_for_two() -> None:
    with pytest.raises(SpliceError, match="no step named cargo in main; it has: reserve_stock"):
        Outline(BLOCK).find("cargo")
    twice = BLOCK.replace("- charge_orders:", "- reserve_stock:")
    with pytest.raises(SpliceError, match="2 steps named reserve_stock, on lines 6 and 13"):
        Outline(twice).find("reserve_stock")
    called_twice = BLOCK.replace("- publish_report:", "- other:").replace("step: publish_report", "step: reserve_stock")
    assert Outline(called_twice).find("reserve_stock").name == "reserve_stock"
    two_calls = called_twice.replace("- reserve_stock:", "- stock:")
    with pytest.raises(SpliceError, match=r"more than one place.*: other \(line 31\) and stock \(line 6\)"):
        Outline(two_calls).find("reserve_stock")


@pytest.mark.parametrize(
    ("body", "key"),
    [("next: z", "next"), ("return: 1", "return"), ("raise: no", "raise")],
)
def test_nothing_is_put_where_it_would_never_run(body: str, key: str) -> None:
    text = f"main:\n  params: [run]\n  steps:\n    - a:\n        {body}\n    - z:\n        return: 1\n"
    with pytest.raises(SpliceError, match=f"would never run.*`{key}`"):
        add_after(Outline(text), Outline(text).find("a"), entry())


def test_a_branch_is_not_jumped_into_or_out_of() -> None:
    text = (
        "main:\n  params: [run]\n  steps:\n"
        "    - a:\n        switch:\n          - condition: ${true}\n            next: c\n"
        "    - b:\n        assign: [{x: 1}]\n    - c:\n        return: 1\n"
    )
    outline = Outline(text)
    with pytest.raises(SpliceError, match=r"main.yaml:7: a jumps to c"):
        add_parallel(outline, outline.find("a"), entry())
    with pytest.raises(SpliceError, match=r"main.yaml:7: `next` jumps to c"):
        add_parallel(outline, outline.find("c"), entry())
    assert "b_and_extra" in add_parallel(outline, outline.find("b"), entry())


def test_eleven_branches_and_three_levels_are_too_many() -> None:
    text = BRANCHES
    for number in range(8):
        text = add_parallel(Outline(text), Outline(text).find("a_step"), entry(f"extra{number}", f"extra{number}"))
    with pytest.raises(SpliceError, match="both has 10 branches"):
        add_parallel(Outline(text), Outline(text).find("a_step"), entry())
    call = "{{{0}_call: {{call: run_step, args: {{step: {0}}}}}}}"
    loops = "- {0}: {{parallel: {{for: {{value: v, in: [1], steps: [" + call + "]}}}}}}"
    fan = Entry("fan", [loops.format("fan")])
    once = add_after(Outline(BRANCHES), Outline(BRANCHES).find("a_step"), fan)
    with pytest.raises(SpliceError, match="at most 2 inside one another"):
        add_after(Outline(once), Outline(once).find("fan_call"), Entry("deep", [loops.format("deep")]))
    with pytest.raises(SpliceError, match="at most 2 inside one another"):
        add_parallel(Outline(once), Outline(once).find("fan_call"), entry())
