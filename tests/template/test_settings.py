"""The settings: read as bash reads them, typed, and refused with the place of what is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.settings import RESERVED, SettingsError, load, quoted, read, workflow_environment

VALUES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=12) | st.sampled_from(
    [
        "",
        " ",
        "a b",
        '"',
        "\\",
        "\\\\",
        "$HOME",
        "`id`",
        "$(id)",
        "~",
        "*",
        "a#b",
        "'",
        "!",
        "ends in \\",
        "\\n",
        "é 🎉",
    ]
)


@given(st.lists(VALUES, min_size=1, max_size=30))
@settings(max_examples=10, deadline=None)
def test_a_value_is_read_as_bash_reads_it(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    folder = tmp_path_factory.mktemp("settings")
    names = [f"K{number}" for number in range(len(values))]
    lines = [f"{name}={quoted(value)}\n" for name, value in zip(names, values, strict=True)]
    (folder / "s.env").write_text("".join(lines), encoding="utf-8")
    show = "; ".join(f'printf "%s\\0" "${name}"' for name in names)
    said = subprocess.run(["bash", "-c", f". ./s.env; {show}"], cwd=folder, check=True, capture_output=True).stdout
    assert said.decode().split("\0")[:-1] == values
    assert [entry.value for entry in read(folder / "s.env", folder).values()] == values


@pytest.mark.parametrize("value", ["two\nlines", "a\ttab", "\r", "\x7f"])
def test_what_no_line_can_hold_is_not_written(value: str) -> None:
    with pytest.raises(ValueError, match="one line"):
        quoted(value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("REGION = x", "write KEY=VALUE"),
        ("export REGION=x", "write KEY=VALUE"),
        ("region=x", "write KEY=VALUE"),
        ("just words", "write KEY=VALUE"),
        ("  REGION=x", "write KEY=VALUE"),
        ("REGION=a b", "in double quotes"),
        ("REGION='a b'", "in double quotes"),
        ("REGION=x # why", "in double quotes"),
        ('REGION="a $HOME"', "in double quotes"),
        ('REGION="a" "b"', "in double quotes"),
        ('REGION="a\\n"', "in double quotes"),
        ("REGION=~/x", "in double quotes"),
        ("REGION=x\r", "control character"),
        ("REGION=x\nREGION=y", "given twice; first in line 1"),
    ],
)
def test_what_bash_would_read_differently_is_refused(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "settings.env"
    file.write_bytes(line.encode())
    with pytest.raises(SettingsError, match=f"settings.env:{1 + line.count(chr(10))}: .*{said}"):
        read(file, tmp_path)


def change(project: Path, name: str, old: str, new: str) -> int:
    """Replace the line that begins with `old`; its number."""
    lines = (project / name).read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(old))
    lines[at] = new
    (project / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return at + 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("PIPELINE=", "PIPELINE=", "PIPELINE is missing"),
        ("PIPELINE=", "PIPELINE=Orders", "PIPELINE is 'Orders'; write 4 to 20"),
        ("PROJECT=", "PROJECT=x", "PROJECT is 'x'"),
        ("REGION=", "REGION=europe", "REGION is 'europe'"),
        ("SCHEDULE=", 'SCHEDULE="every 5 minutes"', "SCHEDULE is 'every 5 minutes'; write five cron fields"),
        ("TIME_ZONE=", "TIME_ZONE=Mars/Olympus", "TIME_ZONE is 'Mars/Olympus'"),
        ("TIME_ZONE=", "TIME_ZONE=Europe", "TIME_ZONE is 'Europe'"),
        ("PROXY_LEASE=", "PROXY_LEASE=2m", "PROXY_LEASE is '2m'; write a whole number from 1 to 7200"),
        ("MAX_RETRY_ATTEMPTS=", "MAX_RETRY_ATTEMPTS=6", "a whole number from 0 to 5"),
        ("STEP_ACCOUNTS=", "STEP_ACCOUNTS=some", "STEP_ACCOUNTS is 'some'; write each or shared"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(project: Path, old: str, new: str, said: str) -> None:
    line = change(project, "settings.env", old, new)
    with pytest.raises(SettingsError) as caught:
        load(project)
    assert str(caught.value).startswith(f"settings.env:{line}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("TIMEOUT=", "TIMEOUT=1801", "TIMEOUT is '1801'; write a whole number from 1 to 1800"),
        ("MEMORY=", "MEMORY=lots", "MEMORY is 'lots'"),
        ("ROLES=", "ROLES=owner", "ROLES has 'owner'"),
        ("SECRETS=", "SECRETS=API_KEY", "SECRETS has 'API_KEY'; write NAME=secret:version"),
        ("SETTINGS=", "SETTINGS=NOWHERE", "names NOWHERE, which settings.env does not have"),
        ("SETTINGS=", 'SETTINGS="PROJECT PROJECT"', "SETTINGS names PROJECT twice"),
        ("SETTINGS=", "SETTINGS=PAYMENT_URL", "stands in another list"),
        ("SECRETS=", "SECRETS=STEP=a:1", "names STEP, which the function gets anyway"),
    ],
)
def test_a_wrong_setting_of_a_step_is_named_with_its_place(project: Path, old: str, new: str, said: str) -> None:
    file = "functions/charge_orders/step.env"
    line = change(project, file, old, new)
    if "stands in another" in said:
        line = next(n for n, text in enumerate((project / file).read_text().splitlines(), 1) if "RECEIVERS=" in text)
    with pytest.raises(SettingsError) as caught:
        load(project)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert said in str(caught.value)


def test_names_of_steps(project: Path) -> None:
    folder = project / "functions" / "charge_orders"
    folder.rename(folder.with_name("Charge-Orders"))
    with pytest.raises(SettingsError, match="functions/Charge-Orders: a step's name"):
        load(project)
    folder.with_name("Charge-Orders").rename(folder.with_name("proxy"))
    with pytest.raises(SettingsError, match="functions/proxy: proxy is the name of the proxy"):
        load(project)


def test_a_step_without_settings_is_named(project: Path) -> None:
    (project / "functions" / "charge_orders" / "step.env").unlink()
    with pytest.raises(SettingsError, match=r"functions/charge_orders/step\.env: not found"):
        load(project)


def test_another_environment_lies_over_the_first(project: Path) -> None:
    with pytest.raises(SettingsError, match=r"settings\.staging\.env: not found"):
        load(project, "staging")
    (project / "settings.staging.env").write_text("PROJECT=my-staging\nRETENTION_DAYS=5\n")
    staging = load(project, "staging")
    assert (staging.project, staging.retention_days, staging.environment) == ("my-staging", 5, "staging")
    assert staging.scope == "my-staging/europe-west1/staging"
    assert staging.entries["PROJECT"].where == "settings.staging.env:1"
    assert (load(project).project, load(project).environment) == ("my-project-id", "prod")


def test_what_the_functions_are_told(baked: Path) -> None:
    made = load(baked)
    shared = {
        "PIPELINE": "order-settlement",
        "SCOPE": "my-project-id/europe-west1/prod",
        "GOOGLE_CLOUD_PROJECT": "my-project-id",
        "FIRESTORE_DATABASE": "order-settlement",
        "RETENTION_DAYS": "90",
        "TIME_ZONE": "Etc/UTC",
    }
    assert made.proxy_environment() == {
        **shared,
        "WORKFLOW": "projects/my-project-id/locations/europe-west1/workflows/order-settlement",
        "PROXY_LEASE": "120",
        "PROXY_TIMEOUT": "60",
        "JOB": "order-settlement",
        "ON_OVERLAP": "allow",
        "SCHEDULE": "0 2 * * *",
    }
    step = {"STEP": "charge_orders", "STEP_TIMEOUT": "300", "STEP_LEASE": "330", "MAX_ATTEMPTS": "10"}
    assert made.step_environment("charge_orders") == {**shared, **step, "PAYMENT_URL": ""}
    stand_in = made.step_environment("charge_orders", {"PAYMENT_URL": "http://here", "WEBHOOK_URL": "http://there"})
    assert stand_in == {**shared, **step, "PAYMENT_URL": "http://here"}
    assert {"SCOPE", "GOOGLE_CLOUD_PROJECT", "FIRESTORE_DATABASE", "WORKFLOW", *step} <= RESERVED
    assert made.service("charge_orders") == "order-settlement-charge-orders"
    assert made.receivers() == {"PAYMENT_URL": ["charge_orders"], "WEBHOOK_URL": ["publish_report"]}


def test_the_workflow_is_told_where_the_steps_are() -> None:
    assert workflow_environment({"b": "https://b", "a": "https://a"}) == {
        "STEP_URLS": '{"a":"https://a","b":"https://b"}'
    }
    with pytest.raises(SettingsError, match="holds 4096"):
        workflow_environment({f"step_{number}": "https://" + "x" * 60 for number in range(60)})
