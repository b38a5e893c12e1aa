"""A wall clock for some processes only, which can be set while they run."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("wall_clock.c")
DAY_SECONDS = 86_400


class WallClock:
    """Start a process with this `environment`, and it goes by this clock."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if sys.platform != "linux" or compiler is None:
            pytest.skip("setting a clock needs Linux and a C compiler")
        library, self._file = folder / "wall_clock.so", folder / "seconds_ahead"
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True, timeout=60)
        library.chmod(0o755)  # servers run as another account
        self._file.write_bytes(struct.pack("q", 0))
        self._file.chmod(0o644)
        self.environment = {"LD_PRELOAD": str(library), "FAULTLINE_CLOCK_FILE": str(self._file)}

    def set_ahead(self, seconds: int) -> None:
        """By so many seconds; negative for a clock that is behind."""
        with self._file.open("r+b") as shared:
            shared.write(struct.pack("q", seconds))
