"""The lines that a worker writes on a terminal about finished jobs."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.processes.project import Project
from tests.running import Connection
from tests.waiting import LIMIT_SECONDS, wait_until

APP = """
    from faultline import Faultline, RetryPolicy
    app = Faultline()

    @app.task(name="noop")
    async def noop(job): ...

    @app.task(name="flaky", retry=RetryPolicy(base_seconds=0.01, cap_seconds=0.02))
    def flaky(job):
        if job.attempt == 1:
            raise ValueError("not yet")
"""
ENQUEUE = "SELECT faultline.enqueue_many(%s, array_fill('{}'::jsonb, ARRAY[%s]), 'default')"
UNFINISHED = "SELECT count(*) FROM faultline.jobs WHERE state IN ('queued', 'running')"


class Terminal:
    """A worker whose stderr is a pseudo-terminal, and all that it writes there."""

    def __init__(self, project: Project, *options: str) -> None:
        self._own_end, far_end = pty.openpty()
        command = [sys.executable, "-m", "faultline", "--app", "shop.app:app", *options, "worker"]
        environment = {**project.environment, "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            command, cwd=project.folder, env=environment, stderr=far_end
        )
        os.close(far_end)
        self._data = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def lines(self) -> list[str]:
        return self._data.decode(errors="replace").splitlines()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT_SECONDS) == 0
        self._reader.join(LIMIT_SECONDS)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        os.close(self._own_end)

    def _read(self) -> None:
        while True:
            try:
                self._data += os.read(self._own_end, 65_536)
            except OSError:  # the worker has closed its end
                return


@pytest.fixture
def terminal(project: Project, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    project.write(app=APP)
    made = Terminal(project, *getattr(request, "param", ()))
    yield made
    made.end()


def wait_for_jobs(conn: Connection) -> None:
    wait_until(lambda: conn.execute(UNFINISHED).fetchone() == (0,), "the end of all jobs")


def test_each_finished_attempt_has_a_line(terminal: Terminal, conn: Connection) -> None:
    conn.execute(ENQUEUE, ["noop", 1])
    conn.execute(ENQUEUE, ["flaky", 1])
    wait_for_jobs(conn)
    terminal.stop()
    shown = [line for line in terminal.lines if re.match(r"\d\d:\d\d:\d\dZ  ", line)]
    assert [
        re.sub(r"[0-9a-f]{8}(-[0-9a-f]+){4}|\d+ ms|\d+\.\d\d s", "-", line[11:])
        for line in sorted(shown, key=_task)
    ] == [
        "flaky  -  retrying in - (attempt 1 of 10)  -",
        "flaky  -  attempt 2  succeeded  -",
        "noop  -  succeeded  -",
    ]


def _task(line: str) -> str:
    return line.split("  ")[1]


def test_many_jobs_have_few_lines_that_count_all_of_them(
    terminal: Terminal, conn: Connection
) -> None:
    conn.execute(ENQUEUE, ["noop", 300])
    wait_for_jobs(conn)
    terminal.stop()
    single = [line for line in terminal.lines if "  noop  " in line]
    summaries = [line for line in terminal.lines if " more job" in line]
    hidden = sum(int(line.split()[1].replace(",", "")) for line in summaries)
    assert len(single) + hidden == 300
    assert summaries
    assert len(single) < 300


@pytest.mark.parametrize("terminal", [("--log-format", "json")], indirect=True)
def test_json_output_has_no_lines_about_jobs(terminal: Terminal, conn: Connection) -> None:
    conn.execute(ENQUEUE, ["noop", 1])
    wait_for_jobs(conn)
    terminal.stop()
    assert all(line.startswith("{") for line in terminal.lines)
    assert not any("noop" in line for line in terminal.lines)
