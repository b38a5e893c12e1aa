"""The worker processes that are measured: as a user starts them, with no more to say than they have."""

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
from faultline.postgres.address import environment_with
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.bench_tasks import APP

START_SECONDS = 60.0
_POLL_SECONDS = 0.02
_SHOWN_LINES = 20


class BenchNotRun(FaultlineError):
    """The bench could not be brought to its end, so there are no figures."""

    code = "bench_not_run"


class BenchWorkers:
    """Each `faultline worker` is in a session of its own: Ctrl-C reaches the bench alone, which ends them.

    Not the drills' witness, which has every job told: that would be most of what a worker does. Nor
    `--processes`: a supervisor that is killed could not take its children along.
    """

    def __init__(self, url: str, settings: BenchSettings) -> None:
        self._program = [sys.executable, "-m", "faultline", "--app", APP, "--log-format", "json"]
        self._program += ["worker", "--concurrency", str(settings.concurrency)]
        self._environment = environment_with(url)
        self._count = settings.workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed on leaving

    def __enter__(self) -> BenchWorkers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """At once, and with all that they started: nothing of theirs is kept."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        self._stderr.close()

    def start(self) -> float:
        """Start them, and wait until all are there; how many seconds that took."""
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
                raise self.failed(f"the workers were not there within {START_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def require_alive(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise self.failed(f"a worker ended with {process.returncode}")

    def failed(self, what: str) -> BenchNotRun:
        """The error that says so, with the workers' last words."""
        lines = self._output().decode(errors="replace").splitlines()[-_SHOWN_LINES:]
        return BenchNotRun("\n".join([f"{what}; the workers said:", *(lines or ["nothing"])]))

    def _output(self) -> bytes:
        return os.pread(self._stderr.fileno(), os.fstat(self._stderr.fileno()).st_size, 0)
