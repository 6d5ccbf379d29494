"""The demo's promises, on a project as it is baked: it proves what holds, and says so when something does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bake import Bake, clean_environment

PAYMENT = "run.idempotency_key)}"


def pipeline(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`./pipeline` with this interpreter, its output together and not on a terminal."""
    env = clean_environment(PIPELINE_PYTHON=sys.executable, **environment)
    return subprocess.run(
        ["./pipeline", *arguments],
        cwd=project,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )


def shorten(project: Path, orders: int = 20) -> None:
    """Keep the first rows of the sample: what is expected is worked out from it."""
    sample = project / "data" / "orders.csv"
    sample.write_text("".join(sample.read_text(encoding="utf-8").splitlines(keepends=True)[: orders + 1]))


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def number(output: str, row: str) -> int:
    """The first number of the row that begins with `row`."""
    match = re.search(rf"^{re.escape(row)}\W+(\d+)", output, re.MULTILINE)
    assert match, f"no row {row!r} in\n{output}"
    return int(match[1])


def test_the_demo_proves_the_default_project(project: Path) -> None:
    demo = pipeline(project, "demo")
    assert demo.returncode == 0, demo.stdout
    output = demo.stdout
    assert "EXACTLY ONCE" in output and "WRONG" not in output and "Traceback" not in output
    assert "\x1b" not in output  # no colour where there is no terminal
    assert number(output, "requests that reached the proxy") >= 5
    assert number(output, "  claimed the run") == 1
    assert number(output, "  refused as a duplicate: the run had been started") >= 1
    assert number(output, "payments") >= 200
    hops = ["scheduler → proxy", "proxy → firestore", "proxy → workflows"]
    for step, receiver in (("reserve_stock", ""), ("charge_orders", "PAYMENT_URL"), ("publish_report", "WEBHOOK_URL")):
        hops += [f"workflows → {step}", f"{step} → firestore", *([f"{step} → {receiver}"] if receiver else [])]
    for hop in hops:
        assert re.search(rf"^{hop}  \w+ +carried out, answer lost +yes", output, re.MULTILINE), hop
    assert re.search(r"^scheduler → proxy  POST +delivered twice at once +yes", output, re.MULTILINE)
    assert "process killed (kill" in output and "-9)" in output
    assert "resolved publish_report" in output  # a webhook whose answer is lost is held, and an operator decides


@pytest.mark.slow
def test_an_effect_that_is_doubled_fails_the_demo(project: Path) -> None:
    shorten(project)
    replace(project / "functions" / "charge_orders" / "main.py", PAYMENT, "os.urandom(8).hex())}")
    demo = pipeline(project, "demo")
    assert demo.returncode == 1
    assert "NOT PROVEN" in demo.stdout and "orders charged twice or more: expected 0, seen" in demo.stdout


@pytest.mark.slow
def test_a_fault_that_did_not_happen_fails_the_demo(project: Path) -> None:
    """Or else a demo without faults would look like a proof."""
    shorten(project)
    replace(
        project / "functions" / "charge_orders" / "step.env",
        "RECEIVERS=PAYMENT_URL",
        'RECEIVERS="PAYMENT_URL SPARE_URL"',
    )
    with (project / "settings.env").open("a") as settings:
        settings.write("\nSPARE_URL=\n")
    demo = pipeline(project, "demo")
    assert demo.returncode == 1
    assert "this fault did not happen: lose_answer at charge_orders->SPARE_URL" in demo.stdout


@pytest.mark.slow
def test_a_bug_in_a_body_shows_its_traceback_under_the_name_of_its_step(project: Path) -> None:
    shorten(project, 5)
    replace(
        project / "functions" / "publish_report" / "main.py",
        "    run.starting()\n",
        '    raise RuntimeError("the totals are wrong")\n',
    )
    demo = pipeline(project, "demo")
    assert demo.returncode == 1
    assert re.search(r"^publish_report: Traceback \(most recent call last\)", demo.stdout, re.MULTILINE)
    assert demo.stdout.count("RuntimeError: the totals are wrong") == 1
    assert "the run did not succeed" in demo.stdout


@pytest.mark.slow
def test_a_project_without_steps_has_a_demo_too(bake: Bake) -> None:
    demo = pipeline(bake(example="none"), "demo")
    assert demo.returncode == 0, demo.stdout
    assert number(demo.stdout, "requests that reached the proxy") >= 5


def test_a_project_without_expectations_is_told_what_is_missing(project: Path) -> None:
    (project / "tests" / "expected.py").unlink()
    demo = pipeline(project, "demo")
    assert demo.returncode == 1 and demo.stdout.count("\n") == 1
    assert "tests/expected.py" in demo.stdout


@pytest.mark.slow
def test_the_demo_holds_on_google_s_emulator(project: Path) -> None:
    from tests.support.firestore import why_no_official

    if why_no_official():
        pytest.skip(str(why_no_official()))
    demo = pipeline(project, "demo", "--firestore", "official")
    assert demo.returncode == 0, demo.stdout
