"""The program `faultline` as a process: output, exit codes, no tracebacks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import orjson
import pytest


def program(*words: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name != "DATABASE_URL"}
    if url:
        environment["DATABASE_URL"] = url
    return subprocess.run(
        [sys.executable, "-m", "faultline", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_job_can_be_enqueued_and_explained(database_url: str) -> None:
    job_id = program("enqueue", "send_mail", '{"to": "ada"}', url=database_url).stdout.strip()
    explained = program("why", job_id, "--json", url=database_url)
    assert orjson.loads(explained.stdout)["code"] == "no_worker"
    assert explained.stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["why", "not-a-uuid"], 2, "is not a valid UUID"),
        (["enqueue", "send_mail", "{oops"], 1, "[invalid_input] the payload is not JSON"),
        (["worker"], 2, "[invalid_settings] a worker needs your application"),
        (["worker", "--app", "shop"], 2, "[invalid_settings] --app 'shop' is not MODULE:NAME"),
        (["worker", "--app", "shop/jobs.py"], 2, "did you mean --app shop.jobs:app?"),
        (["worker", "--app", "none.py:queue"], 2, "did you mean --app none:queue?"),
        (
            ["worker", "--app", "os:nope"],
            2,
            "[invalid_settings] --app: the module os has no 'nope'",
        ),
        (["worker", "--app", "os:sep"], 2, "[invalid_settings] --app: os:sep is a str, not a"),
        (["worker", "--app", "a:b", "--concurrency", "0"], 2, "[invalid_settings] "),
        (["worker", "--app", "a:b", "--processes", "0"], 2, "[usage] invalid value for '-p'"),
        (["drain"], 2, "[usage] no worker is given"),
        (["drain", "w", "--all"], 2, "[usage] workers and --all exclude each other"),
        (["enqueue", "t", "--delay", "soon"], 2, "'soon' is no duration (30, 90s, 5m, 12h, 7d)"),
    ],
)
def test_a_wrong_argument_is_one_line_and_not_a_traceback(
    words: Sequence[str], code: int, message: str
) -> None:
    done = program(*words, url="postgresql://127.0.0.1:1/never-asked")
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message", "command"),
    [
        (["job", "list"], "no such command 'job'", ""),
        (["jobs", "list", "--state", "nope"], "invalid value for '--state': 'nope'", " jobs list"),
        (["jobs", "show", "123"], "invalid value for 'JOB': '123' is not a valid", " jobs show"),
        (["jobs", "show"], "missing argument 'JOB'", " jobs show"),
        (["jobs", "list", "--quue", "a"], "no such option '--quue'", " jobs list"),
    ],
)
def test_a_wrong_command_line_has_a_code_and_names_the_help(
    words: Sequence[str], message: str, command: str
) -> None:
    done = program(*words)
    assert done.returncode == 2
    problem, hint = done.stderr.splitlines()
    assert problem.startswith(f"error [usage] {message}")
    assert hint.startswith("  try: ")
    assert hint.endswith(f"{command} --help")


def test_a_command_without_words_prints_its_help() -> None:
    done = program("jobs")
    assert done.returncode == 2
    assert "Commands:" in done.stdout + done.stderr


def test_without_the_schema_the_error_names_migrate(empty_database_url: str) -> None:
    done = program("jobs", "list", url=empty_database_url)
    assert done.returncode == 1
    assert "[schema_mismatch]" in done.stderr
    assert "try: faultline migrate" in done.stderr


def test_an_unreachable_server_is_named_without_its_password() -> None:
    done = program("jobs", "list", url="postgresql://ada:hunter2@127.0.0.1:1/db")
    assert done.returncode == 1
    assert "[database_unavailable] cannot connect to PostgreSQL at" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["init", "/proc/1/nothing"], "[system_error] /proc/1/nothing: "),
        (["init", "/dev/null/shop"], "[system_error] /dev/null/shop: not a directory"),
        (
            ["jobs", "export", "-o", "/nowhere/jobs"],
            "[system_error] /nowhere/jobs: no such file or directory",
        ),
    ],
)
def test_a_file_that_cannot_be_written_is_one_line_and_not_a_traceback(
    words: Sequence[str], message: str, database_url: str
) -> None:
    done = program(*words, url=database_url)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr
