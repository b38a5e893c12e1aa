"""A signal during the start of a worker ends it, whatever it was doing."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.processes.fleet import BOUND_SECONDS, ROOT
from tests.processes.observed_database import ObservedDatabase


def test_sigterm_during_a_finalizer_is_not_lost(
    database_url: str, database: ObservedDatabase
) -> None:
    program = [
        sys.executable,
        "-m",
        "faultline",
        "--app",
        "tests.draining.sigterm_on_import:app",
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
    # Python dropped the exception that the signal handler raised.
    assert "Exception ignored" in done.stderr
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
