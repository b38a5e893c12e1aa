"""Live `faultline` processes with metrics, gone when the test ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.metrics.scraping import free_port
from tests.monitoring.shipped import ROOT

BOUND_SECONDS = 30.0


class Member(NamedTuple):
    process: subprocess.Popen[bytes]
    address: str  # of its metrics

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(BOUND_SECONDS)


@contextmanager
def member(url: str, log: Path, *command: str) -> Iterator[Member]:
    """A command whose last option is the port of its metrics."""
    port = free_port()
    program = [sys.executable, "-m", "faultline", "--app", "tests.monitoring.jobs:app"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*program, *command, str(port)],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    started = Member(process, f"127.0.0.1:{port}")
    try:
        yield started
    finally:
        started.kill()
