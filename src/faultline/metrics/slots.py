"""The numbers of several worker processes, in files that their supervisor reads.

Each process has a slot, and one that takes a dead one's place goes on counting where that one was killed:
totals never go back, and there are as many files as slots, however often processes die.
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

# Room for a process that has as many names as it may. A file that had to grow on a full disk would end
# the process that writes to it, so its space is taken beforehand.
_SIZES = {"counter": 2**19, "histogram": 2**21, FILE_OF_GAUGES: 2**18}
_NOTHING_USED = bytes(8)  # how such a file begins while there is nothing in it


class Slots:
    """A directory for as long as the supervisor lives."""

    def __init__(self, count: int) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="faultline-metrics-"))
        try:
            for slot in range(count):
                for kind in _SIZES:
                    self._make(kind, slot)
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> Slots:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def files_of(self, slot: int) -> Path:
        """What the process in this slot is to be told: `switch_on(…, files=…)`."""
        return self._directory / str(slot)

    def free(self, slot: int) -> None:
        """Its process has ended: what it was doing then is not true any more."""
        with (
            contextlib.suppress(OSError),  # gauges that are out of date end no supervisor
            (self._directory / f"{FILE_OF_GAUGES}_{slot}.db").open("r+b") as file,
        ):
            file.write(_NOTHING_USED)

    def _make(self, kind: str, slot: int) -> None:
        with (self._directory / f"{kind}_{slot}.db").open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, _SIZES[kind])
            else:
                file.truncate(_SIZES[kind])

    def registry(self, *parts: Part) -> CollectorRegistry:
        collector = MultiProcessCollector(None, str(self._directory))  # type: ignore[no-untyped-call]
        return registry_of(collector.collect, frozenset(parts))
