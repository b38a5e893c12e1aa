"""A fifo that a handler reads from: it blocks there, event loop and all, until it is let go."""

from __future__ import annotations

import os
from pathlib import Path

from tests.processes.observed_database import ObservedDatabase


def make_fifo(folder: Path) -> Path:
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    return fifo


def let_go(database: ObservedDatabase, fifo: Path) -> None:
    """Let the handler that reads from the fifo go on."""

    def somebody_reads() -> bool:
        try:
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    database.wait_until(somebody_reads, "nobody reads from the fifo")
