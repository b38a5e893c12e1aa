"""The health file of a supervisor: which of its processes are meant to run, and where each reports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from faultline.health import health_file
from faultline.health.health_file import ChildStatus, Report
from faultline.health.writer import EVERY_SECONDS, write_first
from faultline.steady import steady_now


class Roster:
    """Written by the supervisor's own loop: if that stands still, so does the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started_at = self._written_at = steady_now()
        self._children: tuple[ChildStatus, ...] = ()
        write_first(path, self._report())

    def file_of(self, slot: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{slot + 1}")

    def note(self, children: Sequence[ChildStatus]) -> None:
        """Write it down when something has changed, and when it is time."""
        now = steady_now()
        if tuple(children) == self._children and now - self._written_at < EVERY_SECONDS:
            return
        self._children, self._written_at = tuple(children), now
        with contextlib.suppress(OSError):  # a full disk ends no supervisor: the file grows old
            health_file.write(self._path, self._report())

    def forget(self, slot: int) -> None:
        """Remove the report of a process that has ended."""
        health_file.remove(self.file_of(slot))

    def close(self) -> None:
        for child in self._children:
            health_file.remove(self._path.with_name(child.file))
        health_file.remove(self._path)

    def _report(self) -> Report:
        return Report(
            "supervisor",
            os.getpid(),
            self._started_at,
            self._written_at,
            loop_turned_at=None,
            vitals=None,
            children=self._children,
        )
