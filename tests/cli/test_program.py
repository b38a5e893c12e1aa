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
    ],
)
def test_a_wrong_argument_is_one_line_and_not_a_traceback(
    words: Sequence[str], code: int, message: str
) -> None:
    done = program(*words, url="postgresql://127.0.0.1:1/never-asked")
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_schema_the_error_names_migrate(empty_database_url: str) -> None:
    done = program("jobs", "list", url=empty_database_url)
    assert done.returncode == 1
    assert "[schema_mismatch]" in done.stderr
    assert "try: run: faultline migrate" in done.stderr


def test_an_unreachable_server_is_named_without_its_password() -> None:
    done = program("jobs", "list", url="postgresql://ada:hunter2@127.0.0.1:1/db")
    assert done.returncode == 1
    assert "[database_unavailable] cannot reach PostgreSQL at" in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr
