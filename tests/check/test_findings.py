"""Each check, with a project that breaks its rule and no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.check.conftest import Checked
from tools.check.findings import Finding

MAIN = "workflows/main.yaml"
CHARGE = "functions/charge_orders/main.py"
RESERVE = "functions/reserve_stock/main.py"


def test_the_template_is_sound(checked: Checked) -> None:
    assert [str(finding) for finding in checked.findings()] == []


SETTINGS: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "attempt deadline below the proxy's time-out": (
        {"ATTEMPT_DEADLINE": 45},
        [("error", "a start that succeeds late counts as failed")],
    ),
    "proxy lease below the attempt deadline": (
        {"PROXY_LEASE": 80},
        [("error", "two executions of one slot may start")],
    ),
    "last gap within the lease": ({"MAX_BACKOFF": 100}, [("error", "a slot whose proxy crashes may be lost")]),
    "last gap beyond the retry duration": ({"MAX_RETRY_DURATION": 200}, [("error", "the last retry comes 80 s after")]),
    "no retry": ({"MAX_RETRY_ATTEMPTS": 0}, [("error", "there is no retry")]),
    "retries into the next slot": ({"SCHEDULE": "0 * * * *"}, [("warning", "may go on for 3870 s")]),
    "one of the readings is enough": (
        {"SCHEDULE": "*/15 * * * *", "MAX_RETRY_DURATION": 600},
        [],
    ),
    "retention below two periods": ({"RETENTION_DAYS": 1}, [("warning", "before the next slot but one")]),
    "four fields": ({"SCHEDULE": "0 6 * * mon,tue"}, []),
    "groc": ({"SCHEDULE": "every 5 minutes of day"}, [("error", "not unix-cron")]),
    "when to look for gaps": ({"GAPS_SCHEDULE": "0 8 * * *"}, []),
    "gaps out of range": ({"GAPS_SCHEDULE": "0 25 * * *"}, [("error", "'0 25 * * *' is not unix-cron")]),
    "out of range": ({"SCHEDULE": "0 25 * * *"}, [("error", "not unix-cron")]),
    "never": ({"SCHEDULE": "0 6 30 2 *"}, [("error", "not unix-cron")]),
    "clock changes": (
        {"SCHEDULE": "30 2 * * *"},
        [
            ("warning", "on 2026-03-29 the clocks of Europe/Berlin change and the slot of 02:30 is skipped"),
            ("warning", "on 2026-10-25 the clocks of Europe/Berlin change and the slot of 02:30 is there twice"),
        ],
    ),
    "clock changes between slots": ({"SCHEDULE": "30 1 * * *"}, []),
    "clock changes on a day without a slot": ({"SCHEDULE": "30 2 * * mon"}, []),
    "hourly": ({"SCHEDULE": "30 */2 * * *"}, []),
    "the other hemisphere": (
        {"SCHEDULE": "0 0 * * *", "TIME_ZONE": "America/Santiago"},
        [("warning", "on 2026-09-06 the clocks of America/Santiago change and the slot of 00:00 is skipped")],
    ),
    "no receiver": ({"PAYMENT_URL": ""}, [("error", "charge_orders has nowhere to write to")]),
    "receiver on a laptop": ({"PAYMENT_URL": "http://127.0.0.1:8080"}, [("error", "the function itself")]),
    "receiver without a host": ({"PAYMENT_URL": "pay.example"}, [("error", "charge_orders cannot call that")]),
    "receiver in the clear": ({"PAYMENT_URL": "http://pay.example"}, [("warning", "in the clear")]),
}


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in findings]


def assert_told(findings: list[Finding], expected: list[tuple[str, str]]) -> None:
    assert len(findings) == len(expected), told(findings)
    for finding, (level, words) in zip(findings, expected, strict=True):
        assert finding.level == level
        assert words in finding.what
        assert finding.change


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(checked: Checked, name: str) -> None:
    settings, expected = SETTINGS[name]
    checked.set(**settings)
    found = checked.findings()
    assert_told(found, expected)
    for finding in found:  # the line is the setting's own
        line = (checked.root / finding.file).read_text().splitlines()[finding.line - 1]
        assert "=" in line


STEPS: dict[str, tuple[str, str, str, list[tuple[str, str]]]] = {
    "lease below time-out and grace": (
        "functions/charge_orders/step.env",
        "LEASE=330",
        "LEASE=310",
        [("error", "side by side")],
    ),
    "a transactional step has no lease": ("functions/reserve_stock/step.env", "LEASE=330", "LEASE=10", []),
    "HTTP time-out below the function's": (MAIN, "timeout: 330", "timeout: 250", [("error", "its result is lost")] * 3),
    "HTTP time-out left out": (MAIN, "            timeout: 330\n", "", []),
    "workflow retries end too soon": (
        MAIN,
        "max_retries: 22",
        "max_retries: 5",
        [("error", "one crash fails the whole run")] * 2,
    ),
    "no retry at all": (
        MAIN,
        "retry:\n",
        "except:\n          as: e\n          steps: []\n      unused:\n",
        [("error", "refuses this")],
    ),
    "retry misses 409": (MAIN, "error.code == 409 or ", "", [("error", "gives up on 409")]),
    "retry misses a fault of the server": (
        MAIN,
        "error.code >= 500",
        "error.code == 503",
        [("error", "gives up on 500, 502, 504")],
    ),
    "retry misses broken connections": (
        MAIN,
        '"ConnectionError" in error.tags or ',
        "",
        [("error", "gives up on ConnectionError")],
    ),
    "retry repeats what is final": (
        MAIN,
        "error.code >= 500",
        "error.code >= 400",
        [("warning", "400, 401, 403, 404, 422")],
    ),
    "function never called": (
        MAIN,
        "step: publish_report",
        "step: charge_orders",
        [("error", "second time"), ("error", "never calls")],
    ),
    "call of no function": (
        MAIN,
        "step: publish_report",
        "step: report",
        [("error", "never calls"), ("error", "no functions/report")],
    ),
    "call without the run": (
        MAIN,
        "step: reserve_stock\n          run: ${run}",
        "step: reserve_stock\n          run: null",
        [("error", "effects double")],
    ),
    "loop without an item": (
        MAIN,
        "                    item: ${order}\n",
        "",
        [("error", "all but the first do nothing")],
    ),
    "not the language": (MAIN, "return: ${report}", "return: ${nothing}", [("error", "Workflows refuses this")]),
    "call past run_step": (
        MAIN,
        "    - finish:\n",
        "    - tell:\n        call: http.post\n        args:\n          url: https://x.example\n    - finish:\n",
        [("error", "called outside run_step")],
    ),
    "a look past run_step": (
        MAIN,
        "    - finish:\n",
        "    - look:\n        call: http.get\n        args:\n          url: https://x.example\n    - finish:\n",
        [],
    ),
    "no decorator": (CHARGE, '@step(on_unknown="retry")\n', "", [("error", "every repeat does its work again")]),
    "not Python": (CHARGE, "def main(", "def main((", [("error", "not Python")]),
    "send without time-out": (
        CHARGE,
        "            timeout=(CONNECT_SECONDS, ANSWER_SECONDS),\n",
        "",
        [("error", "no time-out of its own")],
    ),
    "increment": (
        CHARGE,
        "    charge = {",
        '    database().document("a/b").update({"n": firestore.Increment(1)})\n    charge = {',
        [("error", "counts twice")],
    ),
    "write at import": (
        CHARGE,
        "CONNECT_SECONDS = 5",
        'CONNECT_SECONDS = 5\ndatabase().document("a/b").set({})',
        [("error", "is imported")],
    ),
    "clock": (
        CHARGE,
        "    charge = {",
        "    now = datetime.now()\n    charge = {",
        [("warning", "looks at the clock")],
    ),
    "write outside the transaction": (
        RESERVE,
        "    skus = ",
        '    other = database().collection("audit").document("x")\n    other.set({})\n    skus = ',
        [("error", "writes outside its transaction")],
    ),
    "send within a transaction": (
        RESERVE,
        "    skus = ",
        '    requests.post("https://x", timeout=5)\n    skus = ',
        [("error", "reaches outside")],
    ),
    "set of Python's own": (RESERVE, "    skus = ", "    seen = set()\n    seen.add(1)\n    skus = ", []),
    "part of one CPU": ("functions/charge_orders/step.env", "CPU=1", "CPU=0.5", [("error", "one request at a time")]),
    "many CPUs": ("functions/charge_orders/step.env", "CPU=1", "CPU=4", [("error", "4 CPUs only with 2048 MiB")]),
    "latest secret": (
        "functions/charge_orders/step.env",
        "SECRETS=",
        'SECRETS="KEY=key:latest"',
        [("error", "changes under")],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_and_workflow(checked: Checked, name: str) -> None:
    path, old, new, expected = STEPS[name]
    checked.edit(path, old, new)
    assert_told(
        sorted(checked.findings(), key=lambda finding: finding.what),
        sorted(expected, key=lambda e: told_order(e, checked)),
    )


def told_order(expected: tuple[str, str], checked: Checked) -> str:
    """Sort what is expected as the findings are sorted: by the text that contains it."""
    return next((finding.what for finding in checked.findings() if expected[1] in finding.what), expected[1])


def test_findings_name_the_line(checked: Checked) -> None:
    checked.edit("functions/charge_orders/step.env", "LEASE=330", "LEASE=310")
    [finding] = checked.findings()
    assert (finding.file, finding.line) == ("functions/charge_orders/step.env", 2)
    assert str(finding).startswith("functions/charge_orders/step.env:2: error: ")


def test_long_names(checked: Checked) -> None:
    name = "a" * 31
    checked.set(PIPELINE="shop-of-many-things1")
    (checked.root / "functions/publish_report").rename(checked.root / "functions" / name)
    checked.edit(MAIN, "step: publish_report", f"step: {name}")
    assert_told(checked.findings(), [("error", "Cloud Run takes 49")])


UNREAD = {
    (
        "settings.env",
        "RETENTION_DAY=30",
    ): "nothing reads RETENTION_DAY: its value has no effect. Did you mean RETENTION_DAYS?",
    ("settings.env", "PAYMENT_URI=https://x"): "Did you mean PAYMENT_URL?",
    ("settings.env", "COLOUR=red"): "Remove it; if a function needs COLOUR, name it in SETTINGS of its step.env.",
    ("settings.env", "THREADS=4"): "Move it to the step's step.env.",
    ("settings.prod.env", "RETENTION_DAY=30"): "Did you mean RETENTION_DAYS?",
    ("functions/charge_orders/step.env", "MAX_INSTANCE=3"): "Did you mean MAX_INSTANCES?",
    ("functions/charge_orders/step.env", "PROXY_LEASE=3"): "Move it to settings.env.",
}


@pytest.mark.parametrize(("file", "line"), UNREAD)
def test_a_setting_that_nothing_reads(checked: Checked, file: str, line: str) -> None:
    path = checked.root / file
    text = path.read_text() if path.exists() else "# what differs\n"
    path.write_text(text + line + "\n")
    (found,) = checked.findings()
    assert (found.level, found.file, found.line) == ("warning", file, text.count("\n") + 1)
    assert UNREAD[file, line] in str(found)


def test_a_setting_that_a_step_names_is_read(checked: Checked) -> None:
    path = checked.root / "settings.env"
    path.write_text(path.read_text() + "GREETING=hi\nKEY=local\nTABLE=a.b\n")
    checked.edit("functions/charge_orders/step.env", "SETTINGS=", 'SINKS="bigquery=TABLE"\nSETTINGS="GREETING"')
    checked.edit("functions/charge_orders/step.env", "SECRETS=", 'SECRETS="KEY=pay-key:1"')
    assert checked.findings() == []


def test_a_name_of_deploys_own(checked: Checked) -> None:
    (checked.root / "functions/publish_report").rename(checked.root / "functions/workflow")
    checked.edit(MAIN, "step: publish_report", "step: workflow")
    assert_told(checked.findings(), [("error", "called workflow of its own")])


def test_too_many_steps_for_one_variable(checked: Checked) -> None:
    calls = []
    for number in range(60):
        folder = checked.root / f"functions/step_{number}"
        folder.mkdir()
        (folder / "main.py").write_text((checked.root / CHARGE).read_text())
        (folder / "step.env").write_text("")
        calls.append(
            f"    - s{number}:\n        call: run_step\n        args: {{step: step_{number}, run: '${{run}}'}}\n"
        )
    checked.edit(MAIN, "    - finish:\n", "".join(calls) + "    - finish:\n")
    assert_told(checked.findings(), [("error", "a workflow's variable holds 4096")])


@pytest.mark.parametrize("cloud", ["error", "warning"])
def test_a_laptop_needs_no_receivers(checked: Checked, cloud: Any) -> None:
    checked.set(PAYMENT_URL="")
    assert [finding.level for finding in checked.findings(cloud)] == [cloud]


def test_extending_may_mean_a_short_lease(checked: Checked) -> None:
    checked.edit("functions/charge_orders/step.env", "LEASE=330", "LEASE=60")
    checked.edit(CHARGE, "    charge = {", "    run.extend(60)\n    charge = {")
    assert_told(checked.findings(), [("warning", "side by side")])


def test_the_library_policy_is_not_enough(checked: Checked) -> None:
    text = (checked.root / MAIN).read_text()
    start, end = text.index("        retry:\n"), text.index("    - give:\n")
    (checked.root / MAIN).write_text(text[:start] + "        retry: ${http.default_retry}\n" + text[end:])
    found = told(checked.findings())
    assert any("gives up on 409, 500" in what for _, what in found), found
