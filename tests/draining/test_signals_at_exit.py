"""A signal during the exit of a process does not change its exit code."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.processes.fleet import Fleet, Process
from tests.processes.observed_database import ObservedDatabase

# Python imports this at its start, and finalizes it after it has stopped calling signal handlers.
LINGER = """
import os
import sys
import time

class Lingering:
    mkdir, is_there, sleep = os.mkdir, os.access, time.sleep  # the modules are gone by then

    def __del__(self):
        self.mkdir({leaving!r})
        for _ in range(6_000):
            if self.is_there({end!r}, 0):
                break
            self.sleep(0.02)

if "--supervised-by" not in sys.orig_argv:
    lingering = Lingering()
"""


def start(fleet: Fleet, service: str) -> Process:
    if service == "reconciler":
        process = fleet.reconciler()
        process.wait_for_event("reconciler_leading")
        return process
    return fleet.started("--processes", "2" if service == "supervisor" else "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "second"),
    [
        ("worker", signal.SIGTERM),
        ("worker", signal.SIGINT),
        ("supervisor", signal.SIGTERM),
        ("reconciler", signal.SIGTERM),
    ],
)
def test_a_signal_during_the_interpreters_shutdown_does_not_kill_the_process(
    fleet: Fleet,
    database: ObservedDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    second: signal.Signals,
) -> None:
    leaving, end = tmp_path / "leaving", tmp_path / "end"
    program = LINGER.format(leaving=str(leaving), end=str(end))
    (tmp_path / "sitecustomize.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    process = start(fleet, service)
    process.send(signal.SIGTERM)
    database.wait_until(leaving.exists, "it does not leave")

    process.send(second)
    end.touch()

    assert process.wait() == 0, process.recent_output()
