"""Debian's promtool and prometheus, where they are installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

BOUND_SECONDS = 30.0


def found(program: str) -> str:
    """Its path; a machine without it skips the test, and says why."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed (Debian: apt-get install prometheus)")
    return path


def promtool(*arguments: str) -> str:
    """What it says; a complaint of its own is the failure."""
    done = subprocess.run(
        [found("promtool"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
