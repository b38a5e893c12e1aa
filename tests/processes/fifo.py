"""A FIFO on which a handler blocks its event loop until the test opens it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.processes.observed_database import ObservedDatabase


def make_fifo(folder: Path) -> Path:
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    return fifo


def unblock(database: ObservedDatabase, fifo: Path) -> None:
    """Let the handler that reads from the FIFO continue."""

    def has_reader() -> bool:
        try:
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    database.wait_until(has_reader, "no handler reads from the FIFO")
