"""Kills or stops every process of a server at once, like the loss of its machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from faultline.embedded.server import Server


def power_off(server: Server) -> None:
    """SIGKILL every process of the server.

    Killing the postmaster alone would leave its backends running for a while, and a replaced primary
    could still acknowledge a commit.
    """
    pid = server.pid
    if pid is None:
        return
    os.kill(pid, signal.SIGSTOP)  # so that it neither starts a process nor notices a death
    for child in _children(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    server.kill()


def freeze(server: Server) -> None:
    """SIGSTOP every process; the kernel still accepts connections and data."""
    pid = server.pid
    if pid is None:
        return
    os.kill(pid, signal.SIGSTOP)  # first, so that it starts no other process
    for child in _children(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGSTOP)


def _children(pid: int) -> list[int]:
    if not Path("/proc/self/stat").exists():  # macOS
        listing = ["ps", "-A", "-o", "pid=,ppid="]
        listed = subprocess.run(listing, capture_output=True, text=True, timeout=10, check=True)
        pairs = [row.split() for row in listed.stdout.splitlines()]
        return [int(child) for child, parent in pairs if int(parent) == pid]
    return [int(each.name) for each in Path("/proc").glob("[0-9]*") if _parent(each) == pid]


def _parent(process: Path) -> int | None:
    try:
        # Split at the last parenthesis: the program's name may contain some.
        _, _, rest = (process / "stat").read_text().rpartition(")")
        return int(rest.split()[1])
    except OSError:
        return None  # it has ended
