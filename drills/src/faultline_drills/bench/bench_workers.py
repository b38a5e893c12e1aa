"""The worker processes that are measured, started as a user starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from types import TracebackType

from faultline.errors import FaultlineError
from faultline.postgres.url import environment_with
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.bench_tasks import APP

START_SECONDS = 60.0
_POLL_SECONDS = 0.02
_SHOWN_LINES = 20


class BenchNotRun(FaultlineError):
    """The bench could not be completed, so there are no results."""

    code = "bench_not_run"


class BenchWorkers:
    """Starts each worker in its own session, so that Ctrl-C reaches only the bench.

    The drills' `ObservedProcess` is not used: it makes a worker log every job, which would dominate
    the measurement. Nor is `--processes`: a killed supervisor could not end its children.
    """

    def __init__(self, url: str, settings: BenchSettings) -> None:
        self._program = [sys.executable, "-m", "faultline", "--app", APP, "--log-format", "json"]
        self._program += ["worker", "--concurrency", str(settings.concurrency)]
        self._environment = environment_with(url)
        self._count = settings.workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> BenchWorkers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the workers with their child processes."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        self._stderr.close()

    def start(self) -> float:
        """Start the workers, wait until all are registered, and return how long that took."""
        began = time.monotonic()
        for _ in range(self._count):
            self._processes.append(
                subprocess.Popen(
                    self._program,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._stderr,
                    env=self._environment,
                    start_new_session=True,
                )
            )
        while self._output().count(b'"worker_started"') < self._count:
            self.require_alive()
            if time.monotonic() - began > START_SECONDS:
                raise self.failed(f"the workers did not start within {START_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def require_alive(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise self.failed(f"a worker ended with {process.returncode}")

    def failed(self, what: str) -> BenchNotRun:
        """The error with this message and the workers' last output."""
        lines = self._output().decode(errors="replace").splitlines()[-_SHOWN_LINES:]
        return BenchNotRun("\n".join([f"{what}; output of the workers:", *(lines or ["none"])]))

    def _output(self) -> bytes:
        return os.pread(self._stderr.fileno(), os.fstat(self._stderr.fileno()).st_size, 0)
