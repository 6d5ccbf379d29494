"""What a bake gives: exactly the template's files, as they are, ready to run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cookiecutter.main import cookiecutter

from hooks.post_gen_project import ORDERS
from tests.support.bake import TEMPLATE, Bake, clean_environment

RENDERED = {"README.md", "settings.env", "pyproject.toml"}
"""The files that have Jinja in them; all others are copied as they are."""

EXECUTABLE = {"pipeline", "deploy.sh"}


def files(folder: Path) -> Iterator[str]:
    """Every file below `folder`, relative to it, without caches."""
    for file in folder.rglob("*"):
        relative = file.relative_to(folder)
        cached = any(part == "__pycache__" or part.endswith("_cache") for part in relative.parts)
        if file.is_file() and not cached and relative.parts[0] not in (".git", ".venv", ".local"):
            yield relative.as_posix()


def test_the_example_orders_is_the_template_without_the_other_example(baked: Path, template: Path) -> None:
    source = set(files(template / TEMPLATE.name))
    assert set(files(baked)) == {name for name in source if not name.startswith("examples/")}
    assert {*RENDERED, *EXECUTABLE, "workflows/main.yaml", "data/orders.csv", "proxy/main.py"} <= source


def test_the_example_none_has_nothing_of_orders(bake: Bake, template: Path) -> None:
    project = bake(example="none")
    source = set(files(template / TEMPLATE.name))
    assert set(files(project)) == {name for name in source if not name.startswith("examples/")} - set(ORDERS)
    assert not (project / "data").exists()
    assert not (project / "functions").exists()
    own = template / TEMPLATE.name / "examples" / "none"
    for name in files(own):
        assert (project / name).read_bytes() == (own / name).read_bytes()
    for name in ("settings.env", "workflows/main.yaml", "README.md"):
        assert "PAYMENT_URL" not in (project / name).read_text(encoding="utf-8")
        assert "reserve_stock" not in (project / name).read_text(encoding="utf-8")


def test_code_is_copied_as_it_stands(baked: Path, template: Path) -> None:
    for name in set(files(baked)) - RENDERED:
        assert (baked / name).read_bytes() == (template / TEMPLATE.name / name).read_bytes(), name


@pytest.mark.parametrize("example", ["orders", "none"])
def test_no_braces_are_left(bake: Bake, example: str) -> None:
    project = bake(example=example)
    for name in RENDERED:
        text = (project / name).read_text(encoding="utf-8")
        assert not [mark for mark in ("{{", "}}", "{%", "%}", "cookiecutter.") if mark in text], name
    assert [name for name in files(project) if "{" in name or "cookiecutter" in name] == []


def test_every_yaml_file_parses(baked: Path) -> None:
    names = [name for name in files(baked) if name.endswith((".yaml", ".yml"))]
    assert "workflows/main.yaml" in names
    for name in names:
        assert list(yaml.safe_load_all((baked / name).read_text(encoding="utf-8"))), name


def test_every_shell_script_is_clean(baked: Path) -> None:
    scripts = [name for name in files(baked) if name.endswith(".sh") or name == "pipeline"]
    assert set(scripts) >= EXECUTABLE
    for name in scripts:
        subprocess.run(["bash", "-n", name], cwd=baked, check=True)
    subprocess.run([Path(sys.executable).with_name("shellcheck"), "-x", *EXECUTABLE], cwd=baked, check=True)


def test_every_python_file_compiles(baked: Path) -> None:
    for name in files(baked):
        if name.endswith(".py"):
            compile((baked / name).read_bytes(), name, "exec")


def executables(project: Path) -> set[str]:
    return {name for name in files(project) if os.access(project / name, os.X_OK)}


def test_the_commands_can_be_run(baked: Path) -> None:
    assert executables(baked) == EXECUTABLE


def test_from_a_zip(template: Path, tmp_path: Path, baked: Path) -> None:
    """A zip keeps no execute bits; the project has them all the same."""
    packed = tmp_path / "packed" / "template-main"
    shutil.copytree(template, packed)
    for name in EXECUTABLE:
        (packed / TEMPLATE.name / name).chmod(0o644)
    archive = shutil.make_archive(str(tmp_path / "template"), "zip", packed.parent, packed.name)
    made = cookiecutter(archive, no_input=True, default_config=True, output_dir=str(tmp_path))
    assert set(files(Path(made))) == set(files(baked))
    assert executables(Path(made)) == EXECUTABLE


@pytest.fixture
def repository(template: Path, tmp_path: Path) -> Path:
    """The template as a git repository."""
    repository = tmp_path / "template.git"
    shutil.copytree(template, repository)
    git(repository, "init", "-q", "-b", "main")
    commit(repository)
    return repository


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=author())


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "state")


def author() -> dict[str, str]:
    names = {f"GIT_{who}_{what}": f"a@{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return clean_environment(**names)


def command(name: str, *arguments: str, home: Path, folder: Path) -> None:
    """Run a command of this virtual environment in `folder`; what it keeps for itself goes to `home`."""
    executable = Path(sys.executable).with_name(name)
    environment = {**author(), "HOME": str(home)}
    subprocess.run([executable, *arguments], cwd=folder, check=True, env=environment, capture_output=True)


def test_from_a_git_url(repository: Path, tmp_path: Path, baked: Path) -> None:
    arguments = ("--no-input", "--default-config", f"file://{repository}")
    command("cookiecutter", *arguments, home=tmp_path, folder=tmp_path)
    made = tmp_path / baked.name
    assert set(files(made)) == set(files(baked))
    assert executables(made) == EXECUTABLE


def rebake(template: Path, project: Path, skip_if_file_exists: bool = False) -> None:
    cookiecutter(
        str(template),
        no_input=True,
        default_config=True,
        output_dir=str(project.parent),
        overwrite_if_exists=True,
        skip_if_file_exists=skip_if_file_exists,
    )


def test_baking_over_a_project_keeps_what_is_not_the_templates(template: Path, bake: Bake) -> None:
    project = bake()
    (project / "functions" / "mine").mkdir()
    (project / "functions" / "mine" / "main.py").write_text("mine")
    (project / "tools" / "__init__.py").write_text("changed")
    rebake(template, project)
    assert (project / "functions" / "mine" / "main.py").read_text() == "mine"
    assert (project / "tools" / "__init__.py").read_text() != "changed"


def test_baking_again_beside_existing_files_keeps_their_settings(template: Path, bake: Bake) -> None:
    project = bake()
    settings = project / "settings.env"
    settings.write_text(settings.read_text().replace("PROXY_LEASE=120", "PROXY_LEASE=150"))
    rebake(template, project, skip_if_file_exists=True)
    assert "PROXY_LEASE=150" in settings.read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_cruft_updates_the_templates_part_and_leaves_the_users(repository: Path, tmp_path: Path) -> None:
    command("cruft", "create", "--no-input", f"file://{repository}", home=tmp_path, folder=tmp_path)
    project = tmp_path / "order-settlement"
    git(project, "init", "-q", "-b", "main")
    (project / "settings.env").write_text((project / "settings.env").read_text() + "MINE=1\n")
    commit(project)
    for name in ("tools/__init__.py", "functions/reserve_stock/main.py", "settings.env"):
        file = repository / TEMPLATE.name / name
        file.write_text("# from the template\n" + file.read_text())
    commit(repository)
    command("cruft", "update", "--skip-apply-ask", home=tmp_path, folder=project)
    assert (project / "tools" / "__init__.py").read_text().startswith("# from the template")
    assert not (project / "functions" / "reserve_stock" / "main.py").read_text().startswith("# from the template")
    assert "MINE=1" in (project / "settings.env").read_text()
    assert executables(project) == EXECUTABLE
