"""Completion in a shell: the scripts, and the names of commands, tasks and queues."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from faultline import embedded
from faultline.cli.completion import SHELLS
from faultline.cli.main import cli

from .conftest import Connection, enqueue

APP = "tests.cli.shop:app"


@pytest.fixture(autouse=True)
def _no_server_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise AssertionError("completion started a server")

    monkeypatch.setattr(embedded, "ensure_running", refuse)
    monkeypatch.setattr("faultline.app.ensure_running", refuse)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("FAULTLINE_APP", raising=False)


def completed(*words: str) -> list[str]:
    """What a shell offers for the last word."""
    *before, incomplete = words
    found = ShellComplete(cli, {}, "faultline", "_").get_completions(before, incomplete)
    return [each.value for each in found]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_is_printed(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert f"_FAULTLINE_COMPLETE={shell}_complete" in done.output
    assert "faultline" in done.output


INSTALLED = [shell for shell in SHELLS if shutil.which(shell)]


@pytest.mark.parametrize("shell", INSTALLED)
def test_the_script_is_accepted_by_each_installed_shell(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(CliRunner().invoke(cli, ["completion", shell]).stdout)
    checked = subprocess.run(
        [str(shutil.which(shell)), "-n", script], capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_a_command_by_the_script(tmp_path: Path) -> None:
    bash, program = shutil.which("bash"), Path(sysconfig.get_path("scripts"), "faultline")
    if bash is None or not program.exists():
        pytest.skip("bash or the program faultline is not installed")
    asked = "COMP_WORDS=(faultline rec); COMP_CWORD=1; _faultline_completion faultline"
    done = subprocess.run(
        [bash, "-c", f'eval "$({program} completion bash)"; {asked}; echo "${{COMPREPLY[@]}}"'],
        env={"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["reconciler"], done.stderr


def test_commands_and_options_are_completed() -> None:
    assert completed("wor") == ["worker"]
    assert completed("jobs", "ret") == ["retry"]
    assert "--database-url" in completed("worker", "--data")


@pytest.mark.parametrize(
    "words", [("--app", APP, "enqueue", "sh"), ("enqueue", "--app", APP, "sh")]
)
def test_tasks_of_the_application_are_completed(words: tuple[str, ...]) -> None:
    assert completed(*words) == ["shop.charge"]


def test_queues_of_the_application_are_completed() -> None:
    assert completed("--app", APP, "queues", "pause", "") == ["billing", "default"]


def test_each_of_several_queues_of_a_worker_is_completed() -> None:
    assert completed("worker", "--app", APP, "--queues", "b") == ["billing"]
    assert completed("worker", "--app", APP, "--queues", "billing,") == ["billing,default"]


def test_scenarios_are_completed() -> None:
    assert completed("drill", "run", "backend_k") == ["backend_killed"]


def test_queues_of_the_database_are_completed(database_url: str, conn: Connection) -> None:
    enqueue(conn, queue="mail")
    words = ("queues", "--database-url", database_url, "pause", "m")
    assert completed(*words) == ["mail"]


def test_an_application_that_fails_or_prints_costs_only_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_of_cli.py").write_text("print('hello')\nraise RuntimeError\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert completed("--app", "broken_of_cli:app", "enqueue", "sh") == []
    assert completed("--app", "broken_of_cli:app", "queues", "pause", "d") == ["default"]
    assert capsys.readouterr().out == ""


def test_a_database_that_does_not_answer_costs_only_its_names() -> None:
    words = ("--database-url", "postgresql://127.0.0.1:1/db", "queues", "resume", "")
    assert completed(*words) == ["default"]
