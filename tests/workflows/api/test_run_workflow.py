"""`run-workflow`: one source by itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tools.workflow_file import run_workflow

SOURCE = """
main:
  params: [argument]
  steps:
    - greet:
        call: sys.log
        args:
          text: ${"hello " + argument.name}
          severity: NOTICE
    - show:
        call: sys.log
        args:
          json: {a: 1}
    - done:
        return:
          name: ${argument.name}
          mine: ${sys.get_env("MINE", "none")}
"""


def run(tmp_path: Path, *arguments: str, source: str | bytes = SOURCE) -> Result:
    file = tmp_path / "flow.yaml"
    file.write_bytes(source.encode() if isinstance(source, str) else source)
    return CliRunner().invoke(run_workflow, [str(file), *arguments])


def test_the_result_is_json_and_logs_are_apart(tmp_path: Path) -> None:
    result = run(tmp_path, "--data", '{"name": "zoë"}', "--env", "MINE=yes")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"name": "zoë", "mine": "yes"}
    assert result.stderr == 'NOTICE: hello zoë\nDEFAULT: {"a": 1}\n'


def test_the_trace_names_each_step_and_what_failed(tmp_path: Path) -> None:
    result = run(tmp_path, "--data", '{"nam": 1}', "--trace")
    assert result.exit_code == 1
    assert result.stdout == ""
    begun, failed, error, *_ = result.stderr.splitlines()
    assert re.fullmatch(r" +\d+\.\d{3} s  main\.greet \(call\)", begun)
    assert re.fullmatch(r" +\d+\.\d{3} s  main\.greet \(call\) failed: key not found: name", failed)
    assert error.startswith("Error: the execution failed: KeyError")


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--data", "{"], "argument is not JSON", 1),
        (["--env", "X"], "not of the form NAME=VALUE", 2),
        (["--env", "GOOGLE_X=1"], "GOOGLE", 1),
    ],
)
def test_bad_usage_is_one_line(tmp_path: Path, arguments: list[str], message: str, code: int) -> None:
    result = run(tmp_path, *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_source_that_cannot_be_deployed_names_the_file(tmp_path: Path) -> None:
    result = run(tmp_path, source="main:\n  steps:\n    - a:\n        retrun: 1\n")
    assert result.exit_code == 1
    assert f'{tmp_path / "flow.yaml"}:4:9: step "a": unknown key' in result.stderr
    assert "main.yaml" not in result.stderr


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read" in run(tmp_path, source=b"\xff\xfe\xff").stderr
    missing = CliRunner().invoke(run_workflow, [str(tmp_path / "missing.yaml")])
    assert missing.exit_code == 2
