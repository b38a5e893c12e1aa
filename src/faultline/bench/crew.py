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

from faultline.bench.app import APP
from faultline.bench.settings import BenchSettings
from faultline.errors import FaultlineError

START_SECONDS = 60.0
_POLL_SECONDS = 0.02
_LAST_WORDS = 20


class BenchNotRun(FaultlineError):
    """The bench could not be brought to its end, so there are no figures."""

    code = "bench_not_run"


class Crew:
    """`faultline worker` in a session of its own: Ctrl-C reaches the bench alone, which ends it.

    Not the drills' witness, which has every job told: that would be most of what a worker does.
    """

    def __init__(self, url: str, settings: BenchSettings) -> None:
        self._processes = settings.workers
        program = [sys.executable, "-m", "faultline", "--app", APP, "--log-format", "json"]
        options = ["--processes", str(settings.workers), "--concurrency", str(settings.concurrency)]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [*program, "worker", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            env={**os.environ, "DATABASE_URL": url},
            start_new_session=True,
        )

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def wait_until_started(self) -> float:
        """Until all of them are; how many seconds that took."""
        while self._words().count(b'"worker_started"') < self._processes:
            self.require_alive()
            if time.monotonic() - self._began > START_SECONDS:
                raise BenchNotRun(f"no worker within {START_SECONDS:g} s; {self._last_words()}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - self._began

    def require_alive(self) -> None:
        if self._process.poll() is not None:
            code = self._process.returncode
            raise BenchNotRun(f"the worker ended with {code}; {self._last_words()}")

    def stalled(self, what: str) -> BenchNotRun:
        return BenchNotRun(f"{what}; {self._last_words()}")

    def end(self) -> None:
        """At once, and with all that it started: nothing of theirs is kept."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        self._said.close()

    def _words(self) -> bytes:
        return os.pread(self._said.fileno(), os.fstat(self._said.fileno()).st_size, 0)

    def _last_words(self) -> str:
        lines = self._words().decode(errors="replace").splitlines()[-_LAST_WORDS:]
        return "\n".join(["it said:", *lines]) if lines else "it said nothing"
