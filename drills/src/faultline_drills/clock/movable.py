"""A wall clock that can be moved while processes use it."""

from __future__ import annotations

from pathlib import Path

from faultline_drills.clock import shifted

_BYTES = 8


class MovableClock:
    """Moves the clock of every process that was started with its `environment`."""

    def __init__(self, folder: Path) -> None:
        self.shift_seconds = 0
        self._file = folder / "shift"
        self._file.write_bytes(bytes(_BYTES))
        self.environment = {**shifted(0, folder), "FAULTLINE_DRILL_CLOCK_FILE": str(self._file)}

    def move(self, seconds: int) -> None:
        """Set the clock this many seconds off the true time."""
        with self._file.open("r+b") as shared:  # in place: processes have the file mapped
            shared.write(seconds.to_bytes(_BYTES, "little", signed=True))
        self.shift_seconds = seconds
