"""Shifts the wall clock of a process with a small LD_PRELOAD library."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

_COMPILER = "cc"
_COMPILE_SECONDS = 60


def missing_requirement() -> str | None:
    """What this machine lacks for it; None if nothing."""
    if not sys.platform.startswith("linux"):
        return "needs Linux, for LD_PRELOAD"
    return None if shutil.which(_COMPILER) else "needs a C compiler (cc)"


def shifted(seconds: int, folder: Path) -> dict[str, str]:
    """Build the library in `folder`; the environment that shifts a process's clock."""
    source = folder / "shift.c"
    library = folder / "shift.so"
    source.write_text(resources.files("faultline_drills.clock").joinpath("shift.c").read_text())
    subprocess.run(
        [_COMPILER, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
        check=True,
        timeout=_COMPILE_SECONDS,
    )
    return {"LD_PRELOAD": str(library), "FAULTLINE_DRILL_CLOCK_SHIFT": str(seconds)}
