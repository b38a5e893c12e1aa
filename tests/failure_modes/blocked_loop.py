"""A handler that blocks its event loop for longer than the lease, until the test lets it go."""

from __future__ import annotations

import os
from pathlib import Path

from tests.processes.stage import Stage

SHORT_LEASE = ("--lease-seconds", "1")


def make_fifo(home: Path) -> Path:
    fifo = home / "fifo"
    os.mkfifo(fifo)
    return fifo


def let_go(stage: Stage, fifo: Path) -> None:
    def somebody_reads() -> bool:
        try:
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    stage.wait_until(somebody_reads, "nobody reads from the fifo")
