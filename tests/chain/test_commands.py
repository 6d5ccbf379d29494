"""`./pipeline load`, `run` and `local`, on a project as it is baked."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.chain.test_demo import pipeline, shorten
from tests.chain.test_front import gone, until
from tests.support.bake import clean_environment
from tools.cli import main
from tools.emulators.hosting import bind
from tools.emulators.services import free_port


@dataclass
class Local:
    """A `./pipeline local` at work."""

    project: Path
    process: subprocess.Popen[str]
    log: Path

    def where(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.project / ".local" / "chain.json").read_text())
        return found

    def children(self) -> list[int]:
        """Every process below it."""
        found, look = [], [self.process.pid]
        while look:
            pid = look.pop()
            below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            threads = Path(f"/proc/{pid}/task").iterdir()
            below += [pid for thread in threads for pid in (thread / "children").read_text().split()]
            new = [int(child) for child in set(below)]
            found += new
            look += new
        return found


def start_local(project: Path, *arguments: str) -> Local:
    log = project / "local.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            ["./pipeline", "local", *arguments],
            cwd=project,
            env=clean_environment(PIPELINE_PYTHON=sys.executable),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
        )
    local = Local(project, process, log)
    until(lambda: "is ready after" in log.read_text() or process.poll() is not None, 60)
    return local


@pytest.fixture(scope="module")
def local(baked: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    project = Path(shutil.copytree(baked, tmp_path_factory.mktemp("local") / "project"))
    shorten(project, 5)
    started = start_local(project, "--port", str(free_port()), "--paused")
    assert started.process.poll() is None, started.log.read_text()
    yield started
    started.process.send_signal(signal.SIGINT)
    started.process.wait(30)


def test_help_names_every_command_and_imports_none_of_them() -> None:
    code = (
        "import sys, click; from click.testing import CliRunner; from tools.cli import COMMANDS, pipeline\n"
        "said = CliRunner().invoke(pipeline, ['--help']).output\n"
        "assert all(name in said for name in COMMANDS), said\n"
        "assert not {'rich', 'httpx', 'grpc', 'tools.local', 'tools.demo'} & set(sys.modules)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_a_bad_row_is_named_by_file_line_and_column_and_nothing_is_loaded(local: Local) -> None:
    rows = (local.project / "data" / "orders.csv").read_text().splitlines()
    bad = rows[2].replace(rows[2].split(",")[0], "X-1").replace(",1,", ",one,")
    (local.project / "bad.csv").write_text("\n".join([rows[0], rows[1].replace("A-", "B-"), bad]) + "\n")
    refused = pipeline(local.project, "load", "bad.csv")
    assert refused.returncode == 1 and refused.stdout.count("\n") == 1
    assert re.search(r"^Error: \S*bad\.csv:3:6: .*nothing was loaded$", refused.stdout, re.MULTILINE)
    (local.project / "good.csv").write_text("\n".join([rows[0], rows[1].replace("A-", "B-")]) + "\n")
    assert pipeline(local.project, "load", "good.csv").stdout.startswith("1 documents loaded")  # it was not there


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["load", "no.csv"], "no.csv: No such file", 1),
        (["load", "pipeline"], "pipeline:1:0: ", 1),
        (["run", "--key", "k", "--slot", "2026-01-15T02:00:00Z"], "give one of them", 2),
        (["run", "--slot", "yesterday"], "'yesterday' is no RFC 3339 time", 2),
        (["run", "--key", ""], "--key is empty", 2),
        (["local"], "a chain already runs on", 1),
        (["local", "--port", "65536"], "65536 is not in the range", 2),
        (["firestore", "--port", "0", "--file", "no/x.db"], "cannot use", 1),
        (["prove", "--ignore", "note"], "write DOCUMENT:FIELD", 2),
        (["prove", "--html", "no/x.html"], "there is no folder no to write x.html to", 2),
        (["nonsense"], "No such command 'nonsense'", 2),
    ],
)
def test_what_a_person_can_get_wrong_is_one_line_and_no_traceback(
    local: Local, arguments: list[str], said: str, code: int
) -> None:
    refused = pipeline(local.project, *arguments)
    assert refused.returncode == code
    assert said in refused.stdout.splitlines()[-1] and "Traceback" not in refused.stdout


def test_a_file_can_be_loaded_again_and_a_run_is_one_run_for_one_key(local: Local) -> None:
    for name in ("stock", "orders"):
        assert pipeline(local.project, "load", f"data/{name}.csv").returncode == 0
    first = pipeline(local.project, "run", "--key", "monday")
    assert first.returncode == 0, first.stdout
    assert "run.started" in first.stdout and "\nSUCCEEDED\n" in first.stdout
    again = pipeline(local.project, "run", "--key", "monday")
    assert again.returncode == 0 and "exists already" in again.stdout and "run.started" not in again.stdout
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    loaded = pipeline(local.project, "load", "data/orders.csv")
    assert loaded.stdout.startswith("0 documents loaded") and "5 were there already" in loaded.stdout
    other = pipeline(local.project, "run")  # a key of its own, and nothing left to do
    assert other.returncode == 0 and other.stdout.splitlines()[-1] != first.stdout.splitlines()[-1]
    shown = local.log.read_text()
    assert "charge_orders    step.completed" in shown and "\x1b" not in shown


def test_the_services_of_a_running_chain_refuse_strangers(local: Local) -> None:
    services = json.loads((local.project / ".local" / "chain.json").read_text())["services"]
    for name in ("proxy", "charge_orders"):
        assert httpx.post(services[name], trust_env=False).status_code == 401


def test_a_bug_is_shown_by_run_and_local_with_its_traceback(local: Local) -> None:
    body = local.project / "functions" / "reserve_stock" / "main.py"
    good = body.read_text()
    body.write_text(good.replace("    orders = open_orders(", "    assert 1 + 1 == 3\n    orders = open_orders("))
    try:
        until(lambda: "reserve_stock    process.replaced" in local.log.read_text())
        run = subprocess.Popen(
            ["./pipeline", "run", "--key", "broken"],
            cwd=local.project,
            env=clean_environment(PIPELINE_PYTHON=sys.executable),
            stdout=subprocess.PIPE,
            text=True,
        )
        until(lambda: "AssertionError" in local.log.read_text())
    finally:
        body.write_text(good)  # which is put in place as soon as it is saved
    assert run.stdout
    said = run.stdout.read()
    assert run.wait() == 0 and "reserve_stock: Traceback" in said and "assert 1 + 1 == 3" in said


def test_a_port_in_use_is_said_before_anything_starts(project: Path) -> None:
    with bind(0) as taken:
        refused = pipeline(project, "local", "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 1 and refused.stdout.count("\n") == 1
    assert re.match(r"Error: port \d+ is in use", refused.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "65535"], "port 65536 is none"),
        (["--firestore", "elsewhere"], "write embedded, official or the HOST:PORT"),
        (["--firestore", "127.0.0.1:1"], "no Firestore answers on 127.0.0.1:1"),
    ],
)
def test_what_the_chain_cannot_start_with_is_one_line(project: Path, arguments: list[str], said: str) -> None:
    refused = pipeline(project, "local", *(arguments if "--port" in arguments else ["--port", "21000", *arguments]))
    assert refused.returncode == 1 and refused.stdout.count("\n") == 1
    assert said in refused.stdout


def test_a_step_that_is_not_python_is_shown_from_its_own_line_on(project: Path) -> None:
    step = project / "functions" / "reserve_stock" / "main.py"
    step.write_text(step.read_text() + "def more(:\n")
    refused = pipeline(project, "run")
    assert refused.returncode == 1 and "functions_framework" not in refused.stdout
    assert re.search(r"Error: reserve_stock did not start:\n  File .*reserve_stock/main.py", refused.stdout)
    assert "SyntaxError" in refused.stdout.splitlines()[-1]


def test_a_refusal_of_the_file_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/project/.local")

    monkeypatch.setattr("tools.cli.pipeline", refused)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "Error: /project/.local: Permission denied\n"


def test_a_path_is_meant_from_where_the_user_stands(project: Path) -> None:
    command = ["../pipeline", "load", "stock.csv"]
    environment = clean_environment(PIPELINE_PYTHON=sys.executable)
    done = subprocess.run(
        command, cwd=project / "data", env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("12 documents loaded")


@pytest.mark.slow
def test_ctrl_c_and_kill_leave_nothing_behind_and_the_next_start_carries_on(project: Path) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        local = start_local(project, "--port", str(free_port()), "--paused")
        children = local.children()
        assert len(children) >= 6  # Firestore, the proxy, three steps, the guard
        local.process.send_signal(number)
        assert local.process.wait(30) == (0 if number == signal.SIGINT else -signal.SIGKILL)
        until(lambda children=children: all(gone(pid) for pid in children))  # type: ignore[misc]
    loaded = pipeline(project, "load", "data/stock.csv")
    assert loaded.returncode == 0, loaded.stdout
