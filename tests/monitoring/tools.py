"""Finds and runs promtool and prometheus."""

from __future__ import annotations

import shutil
import subprocess

import pytest

TIMEOUT_SECONDS = 30.0


def find_program(program: str) -> str:
    """Return the program's path; skip the test if it is not installed."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed (Debian: apt-get install prometheus)")
    return path


def promtool(*arguments: str) -> str:
    """Run promtool and return its output; fail the test if it reports an error."""
    done = subprocess.run(
        [find_program("promtool"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
