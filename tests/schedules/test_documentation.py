"""The examples of docs/schedules.md: the code in a worker, and the commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import invoke

from .steps import Connection, make_due

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"


def test_the_code_of_the_page_runs(database_url: str, conn: Connection, tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(code)

    def faultline(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "faultline", "--app", "example:app", *words],
            cwd=tmp_path,
            env={**os.environ, "DATABASE_URL": database_url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    # The first worker declares the schedules and runs one job; the second fires what is due.
    conn.execute("SELECT faultline.enqueue('example.sync', '{\"shop\": \"paris\"}')")
    faultline("worker", "--max-jobs", "1")
    planned = make_due(conn, "example.report")
    faultline("worker", "--max-jobs", "1")

    assert conn.execute(
        "SELECT j.task, j.state, j.scheduled_for, l.result FROM faultline.jobs AS j"
        " JOIN faultline.ledger AS l ON l.job_id = j.id WHERE j.scheduled_for IS NOT NULL"
    ).fetchall() == [("example.report", "succeeded", planned, f"report for {planned}")]
    listed = faultline("schedules", "list")
    assert "sync-berlin" in listed
    assert "Europe/Berlin" in listed


def test_the_commands_of_the_page_work(database_url: str, conn: Connection) -> None:
    [commands] = re.findall(
        r"^```\n(faultline schedules .*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    verbs = []
    for command in commands.splitlines():
        _, *words = shlex.split(command, comments=True)
        done = invoke(database_url, *words)
        assert (done.code, done.error) == (0, None), command
        verbs.append(words[1])
    assert verbs == ["add", "list", "show", "pause", "resume", "run-now", "remove"]
    assert conn.execute("SELECT task FROM faultline.jobs").fetchall() == [("shop.jobs.report",)]
