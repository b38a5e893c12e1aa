"""How PostgreSQL's programs are run, and how a server is made to die with us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import IO, Any

from faultline.embedded.account import other_account

POLL_SECONDS = 0.01


def child_options() -> dict[str, Any]:
    """How every program of PostgreSQL is run: as its account, and deaf to our environment."""
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("PG")}
    options: dict[str, Any] = {
        "cwd": "/",  # ours may be closed to the account
        "env": {**inherited, "LC_ALL": "C"},  # log lines are matched in English
        "stdin": subprocess.DEVNULL,
        "start_new_session": True,  # Ctrl-C is for us; we stop the server in our own time
    }
    if account := other_account():
        options |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    return options


def spawn(
    command: list[str], log: IO[bytes], environment: Mapping[str, str], *, dies_with_us: bool
) -> subprocess.Popen[bytes]:
    options = {**child_options(), "stdout": log, "stderr": log}
    options["env"] = {**options["env"], **environment}
    if dies_with_us and sys.platform == "linux":
        return _spawn_mortal(command, options)
    return subprocess.Popen(command, **options)


def _spawn_mortal(command: list[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The kernel ties the death signal to the thread that forked, not to the process.

    So a thread does it that lives exactly as long as the server.
    """
    born: Future[subprocess.Popen[bytes]] = Future()
    request_death = _death_request()

    def keep() -> None:
        try:
            with warnings.catch_warnings():  # of forks beside threads; ours only execs
                warnings.simplefilter("ignore", DeprecationWarning)
                process = subprocess.Popen(command, **options, preexec_fn=request_death)
        except BaseException as problem:
            born.set_exception(problem)
            return
        born.set_result(process)
        with contextlib.suppress(ChildProcessError):  # already reaped
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=keep, name="faultline-postgres", daemon=True).start()
    return born.result(timeout=30)


def _death_request() -> Callable[[], None]:
    """Runs between fork and exec, after the change of user, which would clear the request."""
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()
    pr_set_pdeathsig = 1

    def request() -> None:
        prctl(pr_set_pdeathsig, int(signal.SIGQUIT))
        if os.getppid() != parent:  # it died before the request was made
            os._exit(1)

    return request
