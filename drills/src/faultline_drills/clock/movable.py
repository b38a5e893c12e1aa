"""A wall clock that jumps while its process runs."""

from __future__ import annotations

from pathlib import Path

from faultline_drills.clock import shifted

_BYTES = 8


class MovableClock:
    """For every process that is started with its environment, at once and from then on."""

    def __init__(self, folder: Path) -> None:
        self.shift_seconds = 0
        self._file = folder / "shift"
        self._file.write_bytes(bytes(_BYTES))
        self.environment = {**shifted(0, folder), "FAULTLINE_DRILL_CLOCK_FILE": str(self._file)}

    def move(self, seconds: int) -> None:
        """Off by this much from the true time, whatever it was before."""
        with self._file.open("r+b") as shared:  # the same file: processes have it mapped
            shared.write(seconds.to_bytes(_BYTES, "little", signed=True))
        self.shift_seconds = seconds
