"""add-step and remove-step on a project: what they write, and that a refusal writes nothing."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tools import steps, templates
from tools.errors import UserError
from tools.settings import load
from tools.steps import Wish, plan_to_add, plan_to_remove

ALL = [template.name for template in templates.built_in()]


def contents(root: Path) -> dict[str, tuple[str, int]]:
    """Every file's hash and mode."""
    return {
        str(path.relative_to(root)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mode)
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def add(
    root: Path,
    name: str,
    template: str = "blank",
    after: str | None = None,
    beside: str | None = None,
    value: str | None = None,
) -> None:
    plan_to_add(root, Wish(name, templates.find(template), after, beside, value)).carry_out(root)


def main_steps(root: Path) -> list[str]:
    workflow = yaml.safe_load((root / "workflows" / "main.yaml").read_text())
    return [next(iter(step)) for step in workflow["main"]["steps"]]


def test_the_ten_templates_are_there_and_whole() -> None:
    assert ALL == ["bigquery", "blank", "fan_out", "http", "publish", "sql", "storage", "task", "transaction", "verify"]
    for template in templates.built_in():
        names = {path.name for path in template.folder.iterdir()}
        assert names >= {"main.py", "step.env", "requirements.txt", "test_step.py", "README.md"}
        text = (template.folder / "README.md").read_text()
        assert template.about
        assert "**What exactly-once means here.**" in text
        assert "**Its edge.**" in text


@pytest.mark.parametrize("kind", ALL)
def test_a_step_comes_and_goes_without_a_trace(project: Path, kind: str) -> None:
    before = contents(project)
    add(project, "extra_work", kind, after="reserve_stock", value="reserve_stock")
    after = contents(project)
    changed = {path for path in before if before[path] != after[path]}
    assert changed <= {"workflows/main.yaml", "settings.env"}
    made = set(after) - set(before)
    assert {"functions/extra_work/main.py", "functions/extra_work/step.env", "tests/test_extra_work.py"} <= made
    assert main_steps(project)[:3] == ["reserve_stock", "extra_work", "charge_orders"]
    settings = load(project)
    prefixed = [*settings.steps["extra_work"].settings, *settings.steps["extra_work"].receivers]
    assert all(key.startswith("EXTRA_WORK_") and key in settings.entries for key in prefixed)
    source = (templates.BUILT_IN / kind / "main.py").read_bytes()
    assert (project / "functions" / "extra_work" / "main.py").read_bytes() == source
    plan_to_remove(project, "extra_work").carry_out(project)
    assert contents(project) == before


def test_the_input_is_wired_to_the_variable_of_the_earlier_step(project: Path) -> None:
    add(project, "first", value="reserve_stock.orders", after="charge_orders")
    add(project, "second", value="first")
    text = (project / "workflows" / "main.yaml").read_text()
    calls = {next(iter(step)): next(iter(step.values())) for step in yaml.safe_load(text)["main"]["steps"]}
    assert calls["first"]["args"]["input"] == "${reserved.orders}"
    assert calls["second"]["args"]["input"] == "${first}"
    assert main_steps(project)[-2:] == ["second", "finish"]


def test_a_step_without_a_result_gets_one(project: Path) -> None:
    file = project / "workflows" / "main.yaml"
    file.write_text(file.read_text().replace("        result: report\n", "").replace("${report}", "null"))
    add(project, "extra", value="publish_report", after="publish_report")
    calls = {next(iter(s)): next(iter(s.values())) for s in yaml.safe_load(file.read_text())["main"]["steps"]}
    assert calls["publish_report"]["result"] == "publish_report"
    assert calls["extra"]["args"]["input"] == "${publish_report}"


def test_a_chain_of_parallel_steps(project: Path) -> None:
    before = (project / "workflows" / "main.yaml").read_bytes()
    add(project, "one", beside="publish_report", value="reserve_stock")
    add(project, "two", beside="one")
    add(project, "three", value="two")
    calls = yaml.safe_load((project / "workflows" / "main.yaml").read_text())["main"]["steps"]
    parallel = next(step["publish_report_and_one"] for step in calls if "publish_report_and_one" in step)["parallel"]
    assert parallel["shared"] == ["report", "one", "two"]
    assert len(parallel["branches"]) == 3
    assert next(s["three"] for s in calls if "three" in s)["args"]["input"] == "${two}"
    for name in ("three", "two", "one"):
        plan_to_remove(project, name).carry_out(project)
    assert (project / "workflows" / "main.yaml").read_bytes() == before


def test_beside_a_call_in_a_loop_it_gets_the_same_item(project: Path) -> None:
    add(project, "receipt", after="charge_order")
    text = (project / "workflows" / "main.yaml").read_text()
    loop = yaml.safe_load(text)["main"]["steps"][1]["charge_orders"]["parallel"]["for"]["steps"]
    assert loop[1]["receipt"]["args"]["item"] == "${order}"


REFUSALS = [
    ({"name": "Charge"}, "no name for a step"),
    ({"name": "a" * 32}, "no name for a step"),
    ({"name": "proxy"}, "reserved"),
    ({"name": "run_step"}, "reserved"),
    ({"name": "end"}, "reserved"),
    ({"name": "work_"}, "cannot end in _"),
    ({"name": "charge_orders"}, "functions/charge_orders is there already"),
    ({"name": "load"}, "tests/test_load.py is there already"),
    ({"name": "finish"}, "has a step named finish already"),
    ({"name": "extra", "template": "nothing"}, "no template nothing: take one of bigquery, blank"),
    ({"name": "extra", "template": "./functions/reserve_stock"}, "no template"),
    ({"name": "extra", "after": "cargo"}, "no step named cargo in main; it has: reserve_stock"),
    ({"name": "extra", "after": "finish"}, "would never run"),
    ({"name": "extra", "value": "cargo"}, "no step named cargo"),
    ({"name": "extra", "value": "charge_orders"}, "no single call of a step"),
    ({"name": "extra", "value": "charge_order"}, "runs once a turn of charge_orders"),
    ({"name": "extra", "value": "publish_report", "after": "reserve_stock"}, "comes later than the new step"),
    ({"name": "extra", "value": "reserve_stock", "beside": "reserve_stock"}, "comes later than the new step"),
    ({"name": "extra", "value": "reserve stock"}, "write the name of an earlier step"),
    ({"name": "extra", "value": "${nonsense.field}"}, "could not be deployed with this change"),
    ({"name": "extra", "template": "fan_out", "after": "charge_order"}, "has a loop of its own"),
    ({"name": "finish_all", "beside": "finish"}, "nothing can run side by side"),
]


@pytest.mark.parametrize(("wish", "why"), REFUSALS, ids=[" ".join(map(str, wish.values())) for wish, _ in REFUSALS])
def test_a_refusal_is_one_line_and_changes_nothing(project: Path, wish: dict[str, str], why: str) -> None:
    before = contents(project)
    with pytest.raises(UserError) as refused:
        add(project, **wish)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    assert contents(project) == before


def test_the_service_of_a_step_keeps_its_url(project: Path) -> None:
    file = project / "settings.env"
    file.write_text(file.read_text().replace("PIPELINE=order-settlement", "PIPELINE=" + "p" * 20))
    add(project, "a" * 29)
    with pytest.raises(UserError, match=f"is 1 too long: the service's URL starts p+-{'a' * 30}-PROJECT"):
        add(project, "a" * 30)


def test_a_used_result_a_missing_step_and_a_broken_file_are_refused(project: Path) -> None:
    file = project / "workflows" / "main.yaml"
    with pytest.raises(UserError, match=r"main.yaml:\d+: reserved is used here"):
        plan_to_remove(project, "reserve_stock")
    with pytest.raises(UserError, match="there is no step cargo; the project has: charge_orders, publish_report"):
        plan_to_remove(project, "cargo")
    whole = file.read_text()
    file.write_text(whole.replace("call: run_step", "call: run_stop", 1))
    with pytest.raises(UserError, match="correct this first"):
        plan_to_add(project, Wish("extra", templates.find("blank")))
    file.write_text(whole + "main: [\n")
    with pytest.raises(UserError, match="not valid YAML"):
        plan_to_add(project, Wish("extra", templates.find("blank")))


def test_a_write_that_fails_takes_back_the_ones_before(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(project)
    plan = plan_to_add(project, Wish("extra", templates.find("http")))
    plan.texts["settings.env/below"] = b"a file is no folder"
    with pytest.raises(UserError, match="nothing has been changed"):
        plan.carry_out(project)
    assert contents(project) == before
    assert not (project / "functions" / "extra").exists()


def test_modes_and_other_bytes_stay(project: Path) -> None:
    file = project / "workflows" / "main.yaml"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    file.chmod(0o640)
    add(project, "extra", "fan_out", after="reserve_stock")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert b"\n" not in file.read_bytes().replace(b"\r\n", b"")


def test_a_dry_run_shows_the_diff_and_changes_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "ROOT", project)
    before = contents(project)
    asked = ["charge", "--template", "http", "--after", "reserve_stock", "--input", "reserve_stock", "--dry-run"]
    shown = CliRunner().invoke(steps.add_step, asked, catch_exceptions=False)
    assert shown.exit_code == 0
    for line in (
        "new functions/charge/main.py",
        "new tests/test_charge.py",
        "+++ b/workflows/main.yaml",
        "+          input: ${reserved}",
        "+++ b/settings.env",
        "+CHARGE_URL=",
    ):
        assert line in shown.output.splitlines()
    assert contents(project) == before
    shown = CliRunner().invoke(steps.remove_step, ["charge_orders", "--dry-run"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert {"delete functions/charge_orders/", "delete tests/test_charge_orders.py"} <= set(shown.output.splitlines())
    assert contents(project) == before


def test_a_template_of_ones_own(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "ours" / "ledger"
    own.mkdir(parents=True)
    (own / "main.py").write_text("# ours\n")
    (own / "test_step.py").write_text("# its test\n")
    (own / "step.env").write_text("TIMEOUT=60\nLEASE=90\nRECEIVERS=LEDGER_URL\n")
    (own / "settings.env").write_text("LEDGER_URL=\n")
    (own / "README.md").write_text("# ledger\n\nWrites to our\nledger.\n")
    monkeypatch.chdir(tmp_path)
    add(project, "book", "./ours/ledger")
    assert load(project).steps["book"].receivers == ("BOOK_URL",)
    assert (project / "functions" / "book" / "main.py").read_text() == "# ours\n"
    listed = CliRunner().invoke(steps.list_templates, [str(tmp_path / "ours")], catch_exceptions=False).output
    assert [line.split()[0] for line in listed.splitlines()] == [*ALL, str(own)]
    assert listed.rstrip().endswith("Writes to our ledger.")
    (own / "test_step.py").unlink()
    with pytest.raises(UserError, match=r"is no template: it has no test_step.py"):
        templates.find("./ours/ledger")
