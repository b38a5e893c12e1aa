"""Metrics of several worker processes, in files that their supervisor reads.

Each process has a slot. A process that replaces a dead one continues its counters, so that totals never
decrease and the number of files stays the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from faultline.metrics.catalogue import Part
from faultline.metrics.exposition import registry_of
from faultline.metrics.series import FILE_OF_GAUGES

# Room for a process with MAX_NAMES names. Growing a file on a full disk would kill the process that writes
# to it, so the space is allocated in advance.
_SIZES = {"counter": 2**19, "histogram": 2**21, FILE_OF_GAUGES: 2**18}
_EMPTY = bytes(8)  # the header of a file without values


class ProcessFiles:
    """A temporary directory that the supervisor removes when it ends."""

    def __init__(self, count: int) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="faultline-metrics-"))
        try:
            for slot in range(count):
                for kind in _SIZES:
                    self._make(kind, slot)
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> ProcessFiles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def files_of(self, slot: int) -> Path:
        """The argument `files` of `switch_on` in the process of this slot."""
        return self._directory / str(slot)

    def free(self, slot: int) -> None:
        """Clear the gauges of a process that has ended."""
        with (
            contextlib.suppress(OSError),  # outdated gauges must not stop the supervisor
            (self._directory / f"{FILE_OF_GAUGES}_{slot}.db").open("r+b") as file,
        ):
            file.write(_EMPTY)

    def _make(self, kind: str, slot: int) -> None:
        with (self._directory / f"{kind}_{slot}.db").open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, _SIZES[kind])
            else:
                file.truncate(_SIZES[kind])

    def registry(self, *parts: Part) -> CollectorRegistry:
        collector = MultiProcessCollector(None, str(self._directory))  # type: ignore[no-untyped-call]
        return registry_of(collector.collect, frozenset(parts))
