"""Keeps a process's health file up to date, from a thread of its own: a blocked event loop does not stop
it, and so can be told from a stopped process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from faultline.errors import InvalidSettings
from faultline.events import Event, emit
from faultline.health import file
from faultline.health.report import Report, Vitals
from faultline.steady import steady_now

EVERY_SECONDS = 1.0


class Pulse:
    def __init__(self, path: Path, kind: str) -> None:
        self._path = path
        self._kind = kind
        self._started_at = steady_now()
        self._loop_turned_at: float | None = None
        self._look: Callable[[], Vitals] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faultline-health", daemon=True)

    def start(self) -> None:
        """The first report is there when this returns."""
        first_report(self._path, self._report())
        self._thread.start()

    def follow(self, look: Callable[[], Vitals]) -> None:
        """From the running event loop: report what `look` sees, and whether the loop goes on turning.

        `look` is called in another thread.
        """
        self._look = look
        self._turn(asyncio.get_running_loop())

    def stop(self) -> None:
        """Leave no report behind: what is gone is not well."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(EVERY_SECONDS)
        file.remove(self._path)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop_turned_at = steady_now()
        if not self._stopping.is_set():
            loop.call_later(EVERY_SECONDS / 2, self._turn, loop)

    def _run(self) -> None:
        said = False
        while not self._stopping.wait(EVERY_SECONDS):
            try:
                file.write(self._path, self._report())
                said = False
            except OSError as error:  # a full disk is no reason to stop working, nor to fall silent
                if not said:
                    emit(Event.DEGRADED, reason=f"the health file cannot be written: {error}")
                said = True

    def _report(self) -> Report:
        turned_at = self._loop_turned_at  # first, so that it is not in the report's future
        vitals = None if self._look is None else self._look()
        return Report(self._kind, os.getpid(), self._started_at, steady_now(), turned_at, vitals)


def first_report(path: Path, report: Report) -> None:
    """A file that cannot be written is a mistake in the settings, and said at the start."""
    try:
        file.write(path, report)
    except OSError as error:
        raise InvalidSettings(
            f"the health file {path} cannot be written: {error.strerror}",
            hint="name one in a directory that exists and can be written to, such as /tmp",
        ) from None


@contextmanager
def pulsing(path: Path | None, kind: str) -> Iterator[Pulse | None]:
    """Inside, the file is kept up to date, if there is to be one."""
    if path is None:
        yield None
        return
    pulse = Pulse(path, kind)
    pulse.start()
    try:
        yield pulse
    finally:
        pulse.stop()
