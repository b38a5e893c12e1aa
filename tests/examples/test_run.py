"""Every command that the README of an example shows works from a copied folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faultline.testing.databases import SERVER_VARIABLE
from tests.slow import slow_unless

from .conftest import EXAMPLES

LIMIT_SECONDS = 240
FAST = [("script", "python run.py"), ("flask_app", "python run.py")]
_COMMAND = re.compile(r"^(python run\.py[^#\n]*?) *(?:#.*)?$", re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Each example with a `run.py`, and each command of its README."""
    folders = sorted(path.parent for path in EXAMPLES.glob("*/run.py"))
    return [
        (folder.name, command)
        for folder in folders
        for command in _COMMAND.findall((folder / "README.md").read_text())
    ]


def run(folder: Path, command: str, server_url: str) -> subprocess.CompletedProcess[str]:
    program, *options = shlex.split(command)
    assert program == "python"
    return subprocess.run(
        [sys.executable, *options],
        cwd=folder,
        env={**os.environ, SERVER_VARIABLE: server_url},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_every_example_has_a_command() -> None:
    with_a_program = {path.parent.name for path in EXAMPLES.glob("*/run.py")}
    assert {"flask_app", "payments", "pipeline", "script", "shop", "webhooks"} <= with_a_program
    assert with_a_program == {name for name, _ in commands()}


def test_every_readme_names_the_variable_that_chooses_the_server() -> None:
    for name, _ in commands():
        assert f"`{SERVER_VARIABLE}`" in (EXAMPLES / name / "README.md").read_text(), name


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "command"), slow_unless(commands(), *FAST))
def test_the_command_ends_with_its_verdict(
    tmp_path: Path, server_url: str, name: str, command: str
) -> None:
    folder = shutil.copytree(EXAMPLES / name, tmp_path / name)
    done = run(folder, command, server_url)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_example_whose_promise_is_broken_fails(tmp_path: Path, server_url: str) -> None:
    folder = shutil.copytree(EXAMPLES / "script", tmp_path / "script")
    script = folder / "measure.py"
    script.write_text(script.read_text().replace("idempotency_key=f", "queue='default' or f"))
    done = run(folder, "python run.py", server_url)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout


def test_make_runs_every_example_and_fails_with_the_first(tmp_path: Path) -> None:
    makefile = (EXAMPLES.parent / "Makefile").read_text()
    recipe = re.search(r"^examples:.*\n\t@(.*)\n", makefile, re.MULTILINE)
    assert recipe is not None
    assert re.search(
        r"^\.PHONY:.* examples ", makefile, re.MULTILINE
    )  # there is a folder of this name
    make = shutil.which("make")
    assert make is not None
    for name, code in (("a", 0), ("b", 3), ("c", 0)):
        (tmp_path / "examples" / name).mkdir(parents=True)
        program = f"import sys; print('{name} in', __import__('os').getcwd()); sys.exit({code})"
        (tmp_path / "examples" / name / "run.py").write_text(program)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "Makefile").write_text(f".PHONY: examples\nBIN := bin\nexamples:\n\t@{recipe[1]}\n")
    done = subprocess.run([make, "-s"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    ran = re.findall(r"^(\w) in .*/examples/(\w)$", done.stdout, re.MULTILINE)
    assert ran == [("a", "a"), ("b", "b")]
