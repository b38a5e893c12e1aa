"""The command line of an installation without faultline-drills."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import faultline

MAIN = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from faultline.cli.main import main; main()"


@pytest.fixture(scope="module")
def queue_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every installed package and its metadata, except the drills."""
    folder = tmp_path_factory.mktemp("site-packages")
    for installed in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not installed.name.startswith(("faultline_drills", "_editable", "__editable__")):
            (folder / installed.name).symlink_to(installed)
    if not (folder / "faultline").exists():
        (folder / "faultline").symlink_to(Path(faultline.__file__).parent)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-c", MAIN, str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("command", [["demo"], ["drill", "run", "poison"], ["bench", "--help"]])
def test_a_command_of_the_drills_says_what_to_install(queue_only: Path, command: list[str]) -> None:
    ran = run(queue_only, *command)
    assert ran.returncode == 1
    assert f"[command_not_installed] `faultline {command[0]}` is not installed" in ran.stderr
    assert "pip install 'faultline-queue[drills]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_help_lists_the_commands_that_are_not_installed(queue_only: Path) -> None:
    ran = run(queue_only, "--help")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("Not installed:") == 3


def test_the_entry_points_of_the_drills_match_the_listed_commands() -> None:
    from faultline.cli.main import COMMANDS_OF_THE_DRILLS

    found = {entry_point.name for entry_point in entry_points(group="faultline.commands")}
    assert found == set(COMMANDS_OF_THE_DRILLS)


def test_both_distributions_have_the_same_version() -> None:
    import faultline_drills

    assert faultline_drills.__version__ == faultline.__version__
