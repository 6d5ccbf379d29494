"""The command: words, JSON, exit codes and the estimate."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from tests.check.conftest import Checked
from tools.check import command
from tools.check.budget import retry_gaps, retry_window
from tools.check.calls import times
from tools.check.cost import PRICES, cost


@pytest.fixture
def run(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(command, "ROOT", checked.root)
    return lambda *arguments: CliRunner().invoke(command.check, arguments)


def test_a_sound_project(run: Callable[..., Result]) -> None:
    done = run("--deploy")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("check: nothing found\ncost: about $")


def test_an_error_exits_with_1_and_a_warning_does_not(run: Callable[..., Result], checked: Checked) -> None:
    checked.set(PAYMENT_URL="")
    assert run().exit_code == 0
    done = run("--deploy")
    assert done.exit_code == 1
    assert "settings.env:" in done.output
    assert "check: 1 error, 0 warnings" in done.output


def test_json_for_machines(run: Callable[..., Result], checked: Checked) -> None:
    checked.set(PROXY_LEASE=80)
    done = run("--format", "json", "--items", "7")
    answer = json.loads(done.output)
    assert [sorted(finding) for finding in answer["findings"]] == [["change", "file", "level", "line", "what"]]
    assert answer["cost"]["items"] == 7
    assert answer["cost"]["total"] == pytest.approx(sum(part["cost"] for part in answer["cost"]["parts"]), abs=1e-4)
    assert done.exit_code == 1


def test_an_environment(run: Callable[..., Result], checked: Checked) -> None:
    (checked.root / "settings.test.env").write_text("PROXY_LEASE=80\n")
    assert run("--env", "test").exit_code == 1
    assert run().exit_code == 0


def test_it_is_a_command_of_the_project() -> None:
    from tools.cli import pipeline

    found = pipeline.get_command(click.Context(pipeline), "check")
    assert found is command.check


def test_the_arithmetic_of_the_defaults(checked: Checked) -> None:
    project = checked.project()
    assert retry_gaps(project.settings) == [10, 20, 40, 80, 160]
    assert retry_window(project.settings) == 3600 + 180 + 90
    assert project.workflow is not None
    kept = times(project.workflow)
    assert kept is not None
    assert kept.waits[:6] == [2, 4, 8, 16, 32, 60]
    assert kept.window == 1082
    assert kept.longest == 1082 + 23 * 330


def test_the_estimate_follows_from_the_parts(checked: Checked) -> None:
    ten = {what: amount for what, amount, _ in cost(checked.project(), 10).lines}
    twenty = {what: amount for what, amount, _ in cost(checked.project(), 20).lines}
    assert list(ten) == list(PRICES)
    requests, writes, deletes = (
        "Cloud Run requests, million",
        "Firestore writes, 100000",
        "Firestore TTL deletes, 100000",
    )
    assert ten[requests] == 30 * (1 + 1 + 10 + 1)  # proxy, reserve_stock, charge_orders, publish_report
    assert ten[writes] == 30 * (2 + 1 + 2 * 10 + 2)  # claim and completion; one commit for a transactional step
    assert ten[deletes] == 30 * (1 + 1 + 10 + 1)
    assert twenty[requests] - ten[requests] == 30 * 10
