"""Windows: producers and the commands of operators work, services are refused.

What Windows lacks is removed from the Python of a subprocess by without_posix.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faultline.cli.main import COMMANDS
from tests.slow import slow_unless

WITHOUT_POSIX = Path(__file__).with_name("without_posix.py")
PRODUCER = """
import asyncio
import sys

import faultline

for name in faultline.__all__:
    getattr(faultline, name)
app = faultline.Faultline(sys.argv[0])


@app.task()
def greet(job: faultline.Job, name: str) -> None: ...


async def enqueue_two() -> None:
    await greet.enqueue_async(name="second")
    await greet.enqueue_async(name="third")


greet.enqueue(name="first")
asyncio.run(enqueue_two())
assert app.queues()
app.close()
"""


HELP = """
from faultline.cli.main import COMMANDS, cli

for command in COMMANDS:
    cli([command, "--help"], prog_name="faultline", standalone_mode=False)
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(WITHOUT_POSIX), program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def run_command(database_url: str, *words: str) -> str:
    """Run a command; `doctor` ends with 1 if the server's settings can be better."""
    done = run("faultline", "--database-url", database_url, *words)
    assert done.returncode == 0 or (done.returncode == 1 and "doctor" in words), (words, done)
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_modules_and_names_are_removed() -> None:
    for line in ("import fcntl", "import os; os.fork", "import signal; signal.SIGKILL"):
        assert run(line).returncode == 1, line


def test_a_producer_enqueues(database_url: str, conn: psycopg.Connection[Any]) -> None:
    done = run(PRODUCER, database_url)
    assert done.returncode == 0, done.stderr
    assert conn.execute("select count(*) from faultline.jobs").fetchone() == (3,)


def test_every_command_shows_its_help() -> None:
    done = run(HELP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage:") == len(COMMANDS)


@pytest.mark.slow
def test_an_operator_can_look_after_the_queue(empty_database_url: str) -> None:
    run_command(empty_database_url, "migrate")
    run_command(empty_database_url, "enqueue", "shop.charge")
    assert "shop.charge" in run_command(empty_database_url, "jobs", "list")
    for words in (["queues"], ["verify"], ["doctor"], ["queues", "pause", "default"], ["purge"]):
        run_command(empty_database_url, *words)


@pytest.mark.parametrize(
    "words",
    slow_unless(
        [["--app", "shop:app", "worker"], ["reconciler"], ["api"], ["inspector", "serve"]],
        ["--app", "shop:app", "worker"],
    ),
)
def test_a_service_says_where_it_runs(database_url: str, words: list[str]) -> None:
    done = run("faultline", "--database-url", database_url, *words)
    assert done.returncode == 2
    assert "[unsupported_system]" in done.stderr
    assert "run on Linux and macOS, not on Windows" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_embedded_server_says_where_it_runs() -> None:
    done = run("faultline", "db", "start")
    assert done.returncode == 2
    assert "[unsupported_system] the embedded server runs on Linux and macOS" in done.stderr
    assert "set DATABASE_URL" in done.stderr
