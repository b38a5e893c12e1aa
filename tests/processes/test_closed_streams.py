"""A process works although its standard streams were closed at its start."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline.statements import leadership
from tests.processes import apps
from tests.processes.fleet import APP, BOUND_SECONDS, ROOT
from tests.processes.observed_database import ObservedDatabase
from tests.running import ended
from tests.waiting import wait_until

LISTENING = "0A"


@contextlib.contextmanager
def without_streams(url: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command as a daemon, with `0<&- 1>&- 2>&-`."""
    program = [sys.executable, "-m", "faultline", "--app", APP, *command]
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", *program],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url},
        start_new_session=True,
    )
    try:
        yield process
        assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(BOUND_SECONDS)


def port_of(pid: int) -> int | None:
    """The TCP port it listens on.

    Not chosen in advance, since another process may take it.
    """
    with contextlib.suppress(OSError):
        targets = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and f"socket:[{words[9]}]" in targets:
                return int(words[1].rpartition(":")[2], 16)
    return None


def answers(pid: int) -> bool:
    port = port_of(pid)
    with contextlib.suppress(OSError):
        return port is not None and bool(
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=BOUND_SECONDS)
        )
    return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the port is found by /proc")
def test_worker_reconciler_and_api_work_without_standard_streams(
    database_url: str,
    database: ObservedDatabase,
    conn: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    with without_streams(database_url, "reconciler"):
        wait_until(lambda: run(conn, leadership.is_led()), "a reconciler that leads")
    with (
        without_streams(database_url, "worker", "--poll-seconds", "0.1"),
        without_streams(database_url, "api", "--port", "0", "--insecure-no-keys") as api,
    ):
        jobs = [task.enqueue().job_id for task in (apps.pay_plain, apps.pay_in_a_child)]
        assert [ended(apps.app, job).state for job in jobs] == ["succeeded"] * 2
        wait_until(lambda: answers(api.pid), "an answer of the API")
    apps.app.close()
