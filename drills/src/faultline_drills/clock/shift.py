"""Shifts the wall clock of a process, by a small library that is loaded before all others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

_COMPILER = "cc"
_COMPILE_SECONDS = 60


def lacking() -> str | None:
    """What this machine would have to have; None when it can."""
    if not sys.platform.startswith("linux"):
        return "needs Linux, where a library can be loaded before all others"
    return None if shutil.which(_COMPILER) else "needs a C compiler (cc)"


def shifted(seconds: int, folder: Path) -> dict[str, str]:
    """The environment of a process whose wall clock is off by this much; built in `folder`."""
    source = folder / "shift.c"
    library = folder / "shift.so"
    source.write_text(resources.files("faultline_drills.clock").joinpath("shift.c").read_text())
    subprocess.run(
        [_COMPILER, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
        check=True,
        timeout=_COMPILE_SECONDS,
    )
    return {"LD_PRELOAD": str(library), "FAULTLINE_DRILL_CLOCK_SHIFT": str(seconds)}
