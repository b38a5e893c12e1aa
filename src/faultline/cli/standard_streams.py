"""Standard streams that were closed when the process started (`2>&-`) lead to /dev/null.

Otherwise the next socket that is opened gets the number 0, 1 or 2, and what a library or a child process
writes to "stderr" goes to the database. Python itself has no `sys.stderr` then.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_NAMES = ("stdin", "stdout", "stderr")


def open_closed_streams() -> None:
    """Call this first: before anything else opens a file."""
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - kept open
