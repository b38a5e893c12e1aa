"""Real `faultline` processes of a test: observed, and never left behind."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

from faultline_drills.processes.observed_process import Event, ObservedProcess

ROOT = Path(__file__).parents[2]
APP = "tests.processes.apps:app"
BOUND_SECONDS = 45.0


class Process(ObservedProcess):
    """An observed process whose missing events and missing end fail the test."""

    def __init__(self, name: str, url: str, command: list[str]) -> None:
        super().__init__(
            name,
            app=APP,
            url=url,
            command=command[0],
            options=command[1:],
            working_directory=ROOT,
        )

    def wait(self, timeout_seconds: float = BOUND_SECONDS) -> int:
        try:
            return super().wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process does not end; {self.recent_output()}") from None

    def wait_for_event(self, name: str, *, times: int = 1, **fields: Any) -> Event:
        """The `times`-th such event; fails at the timeout or when the process has ended."""
        seen = self.has_event(name, timeout_seconds=BOUND_SECONDS, times=times, **fields)
        assert seen, f"no event {name} {fields}; {self.recent_output()}"
        return self.events_named(name, **fields)[times - 1]


class Fleet:
    """All processes of one test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._processes: list[Process] = []

    def worker(self, *options: str, name: str = "worker", url: str | None = None) -> Process:
        """Start a worker that polls often; `options` override the defaults."""
        return self._start(name, url, ["worker", "--poll-seconds", "0.1", *options])

    def started(self, *options: str, name: str = "worker", url: str | None = None) -> Process:
        """Start a worker, and wait until it is registered."""
        process = self.worker(*options, name=name, url=url)
        process.wait_for_event("worker_started")
        return process

    def reconciler(
        self, name: str = "reconciler", *options: str, url: str | None = None
    ) -> Process:
        return self._start(name, url, ["reconciler", *options])

    def end(self) -> None:
        # An error at one process must not keep the others running.
        with contextlib.ExitStack() as stack:
            for process in self._processes:
                stack.callback(process.end)

    def _start(self, name: str, url: str | None, command: list[str]) -> Process:
        process = Process(name, url or self.url, command)
        self._processes.append(process)
        return process
