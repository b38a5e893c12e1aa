"""Opens standard streams that were closed at the start (`2>&-`) on /dev/null.

Otherwise the next socket gets the number 0, 1 or 2, and output of a library or a child process to
"stderr" goes to the database. Python itself has no `sys.stderr` then.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_NAMES = ("stdin", "stdout", "stderr")


def open_closed_streams() -> None:
    """Must run before the process opens any other file."""
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - kept open
