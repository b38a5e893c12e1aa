"""Live `faultline` processes with metrics, killed when the test ends."""

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
from tests.monitoring.monitoring_files import ROOT

TIMEOUT_SECONDS = 30.0


class MonitoredProcess(NamedTuple):
    process: subprocess.Popen[bytes]
    address: str  # host and port of its metrics

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)


@contextmanager
def monitored_process(url: str, log: Path, *command: str) -> Iterator[MonitoredProcess]:
    """Run a command; `command` ends with the option for the port of the metrics."""
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
    started = MonitoredProcess(process, f"127.0.0.1:{port}")
    try:
        yield started
    finally:
        started.kill()
