"""A thread that keeps a process's health file up to date.

A blocked event loop does not stop the thread, so that probes can tell it from a stopped process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from faultline.errors import InvalidSettings
from faultline.events import Event, emit
from faultline.health import health_file
from faultline.health.health_file import Report, Vitals
from faultline.steady import steady_now

EVERY_SECONDS = 1.0


class HealthFileWriter:
    def __init__(self, path: Path, kind: str) -> None:
        self._path = path
        self._kind = kind
        self._started_at = steady_now()
        self._loop_turned_at: float | None = None
        self._read_vitals: Callable[[], Vitals] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faultline-health", daemon=True)

    def start(self) -> None:
        """Write the first report before returning."""
        write_first(self._path, self._report())
        self._thread.start()

    def follow(self, read_vitals: Callable[[], Vitals]) -> None:
        """Report `read_vitals`, and whether the calling event loop makes progress.

        `read_vitals` is called in the writer's thread.
        """
        self._read_vitals = read_vitals
        self._turn(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop, and remove the file: a process that has ended is not healthy."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(EVERY_SECONDS)
        health_file.remove(self._path)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop_turned_at = steady_now()
        if not self._stopping.is_set():
            loop.call_later(EVERY_SECONDS / 2, self._turn, loop)

    def _run(self) -> None:
        is_logged = False
        while not self._stopping.wait(EVERY_SECONDS):
            try:
                health_file.write(self._path, self._report())
                is_logged = False
            except (
                OSError
            ) as error:  # on a full disk the process goes on, and the thread tries again
                if not is_logged:
                    emit(Event.DEGRADED, reason=f"the health file cannot be written: {error}")
                is_logged = True

    def _report(self) -> Report:
        turned_at = self._loop_turned_at  # read first, so that it is not later than the report
        vitals = None if self._read_vitals is None else self._read_vitals()
        return Report(self._kind, os.getpid(), self._started_at, steady_now(), turned_at, vitals)


def write_first(path: Path, report: Report) -> None:
    """Raises InvalidSettings if the file cannot be written."""
    try:
        health_file.write(path, report)
    except OSError as error:
        raise InvalidSettings(
            f"the health file {path} cannot be written: {error.strerror}",
            hint="choose a file in an existing, writable directory, such as /tmp",
        ) from None


@contextmanager
def health_file_writer(path: Path | None, kind: str) -> Iterator[HealthFileWriter | None]:
    """Keep the file up to date inside the block; None does nothing."""
    if path is None:
        yield None
        return
    writer = HealthFileWriter(path, kind)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()
