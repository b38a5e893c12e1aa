"""A worker that is told to leave before it has begun leaves, whatever it was doing just then."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.processes.fleet import BOUND_SECONDS, ROOT
from tests.processes.observed_database import ObservedDatabase


def test_a_word_to_leave_that_comes_while_python_cleans_up_is_not_lost(
    database_url: str, database: ObservedDatabase
) -> None:
    program = [
        sys.executable,
        "-m",
        "faultline",
        "--app",
        "tests.draining.told_early:app",
        "worker",
    ]
    done = subprocess.run(
        program,
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" in done.stderr  # else nothing was lost that could be missed
    assert database.registered() == 0


WRAPPED = """
import os, signal
from faultline.termination import Termination

with Termination():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit as error:
        raise ValueError("a schema") from error  # as an extension module does while it is imported
"""


def test_a_signal_during_the_start_ends_the_process_even_if_its_exception_is_wrapped() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRAPPED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
