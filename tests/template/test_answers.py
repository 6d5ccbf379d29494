"""What the template asks for: answers that would not deploy are refused, hostile ones break nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cookiecutter.exceptions import FailedHookException

from hooks import pre_gen_project as hook
from tests.support.bake import ROOT, Bake, clean_environment
from tools.settings import load

GOOD = {
    "project_name": "Orders",
    "project_slug": "orders",
    "gcp_project": "my-project",
    "region": "europe-west1",
    "schedule": "0 2 * * *",
    "time_zone": "Europe/Berlin",
}

HOSTILE = [
    "O'Neill's",
    '"quoted" and \'\'\' and """',
    "ends in a backslash \\",
    "$HOME `id` $(id) %s {0} #{x} <b>&amp;",
    "日本 🎉 naïve",
    "'); import os; os.abort() #",
]


def complaints(**answers: str) -> list[str]:
    return list(hook.problems({**GOOD, **answers}))


def test_good_answers_are_taken() -> None:
    assert complaints() == []


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "*/5 * * * *",
        "0 0 1,15 * *",
        "0 9-17 * * MON-FRI",
        "0 9-17/2 * JAN,jun SUN",
        "59 23 31 12 6",
        "0 0 29 2 *",
        "0 0 31 */2 *",
        "0 0 30 2 1",  # on Mondays of February: a restricted weekday is enough
    ],
)
def test_unix_cron_is_taken(schedule: str) -> None:
    assert complaints(schedule=schedule) == []


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("every 5 minutes", "App Engine's groc form"),
        ("every day 02:00", "App Engine's groc form"),
        ("1st,3rd monday of month 04:00", "App Engine's groc form"),
        ("2nd mon,wed of march 17:00", "App Engine's groc form"),
        ("@daily", "a macro"),
        ("0 2 * *", "4 fields"),
        ("0 0 2 * * *", "6 fields"),
        ("", "0 fields"),
        ("0  2 * * *", "one space"),
        ("0 2 * * *\n", "one space"),
        ("60 2 * * *", "minute '60': '60' is not within 0 to 59"),
        ("0 24 * * *", "hour '24'"),
        ("0 0 0 * *", "day of month '0'"),
        ("0 0 * 13 *", "month '13': '13' is not within 1 to 12 or JAN to DEC"),
        ("0 0 * * 7", "day of week '7': '7' is not within 0 to 6 or SUN to SAT"),
        ("0 0 * * FOO", "'FOO' is not within"),
        ("*/0 * * * *", "the step '0' is no number from 1 up"),
        ("5/10 * * * *", "a step goes with * or with a range"),
        ("30-10 * * * *", "the range 30-10 runs backwards"),
        ("0 0 * * L", "'L' is not within"),
        ("0 0 ? * *", "write *, a value"),
        ("0,,5 * * * *", "write *, a value"),
        ("0 0 30 2 *", "in no year"),
        ("0 0 31 4,6,SEP,nov *", "in no year"),
        ("0 0 30,31 2 *", "in no year"),
        ("0 0 30-31 FEB */2", "in no year"),
        ("٣ * * * *", "write *, a value"),
    ],
)
def test_other_schedules_are_refused(schedule: str, said: str) -> None:
    found = complaints(schedule=schedule)
    assert len(found) == 1
    assert found[0].startswith("schedule ")
    assert said in found[0]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("project_name", ["", "  ", "two\nlines", "a\ttab", "bell\a"]),
        (
            "project_slug",
            ["", "Orders", "1st-orders", "or", "orders-", "a--bcd", "or_ders", "a" * 21, "../x"],
        ),
        (
            "gcp_project",
            ["", "short", "My-Project", "9projects", "project-", "p" * 31, "my_project", "a.com:app"],
        ),
        ("region", ["", "europe", "europe-west1-b", "EU-west1", "eur3"]),
        ("time_zone", ["", "CET+1", "Europe/Nowhere", "Europe", "../etc/passwd", "Europe/Berlin\n", "O'Clock"]),
    ],
)
def test_other_bad_answers_are_refused_in_one_line_each(name: str, values: list[str]) -> None:
    for value in values:
        found = complaints(**{name: value})
        assert len(found) == 1, value
        assert found[0].startswith(f"{name} ")
        assert "\n" not in found[0]


def test_a_refusal_names_every_bad_answer_and_makes_nothing(
    bake: Bake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FailedHookException):
        bake(project_slug="orders", schedule="every 5 minutes", time_zone="Mars/Olympus")
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith(("schedule", "time_zone"))]
    assert [line.split()[0] for line in lines] == ["schedule", "time_zone"]
    assert list((tmp_path / "baked1").iterdir()) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_breaks_nothing(bake: Bake, name: str) -> None:
    project = bake(project_name=name, project_slug="orders")
    assert load(project).pipeline == "orders"
    assert name in (project / "README.md").read_text(encoding="utf-8")


def test_a_name_without_letters_still_makes_a_project(bake: Bake) -> None:
    assert bake(project_name="🚀").name == "pipeline"


def test_braces_typed_at_a_prompt_stay_what_they_are(template: Path, tmp_path: Path) -> None:
    """What is typed is no template, unlike what comes with --no-input, which cookiecutter itself renders."""
    typed = ["{{ 7 * 7 }} {{", "orders", "my-project", "europe-west1", "0 2 * * *", "Etc/UTC", "1", ""]
    done = subprocess.run(
        [sys.executable, "-m", "cookiecutter", "--default-config", "-o", str(tmp_path), str(template)],
        input="\n".join(typed),
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "{{ 7 * 7 }} {{" in (tmp_path / "orders" / "README.md").read_text(encoding="utf-8")


def test_every_question_is_asked_in_words() -> None:
    questions = json.loads((ROOT / "cookiecutter.json").read_text(encoding="utf-8"))
    asked = {name for name in questions if not name.startswith("_")}
    assert questions["__prompts__"].keys() == asked
    assert "permanent" in questions["__prompts__"]["region"]
