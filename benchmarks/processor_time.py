"""Reads the processor time of processes from /proc, which only Linux has."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import psycopg

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def of_process(pid: int) -> float:
    """Seconds that the threads of a process have used so far."""
    used = 0
    for thread in (_PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            used += int((thread / "schedstat").read_text().split()[0])
    return used / 1e9


def of_server(conn: psycopg.Connection[Any]) -> float:
    """Seconds of a local PostgreSQL: of its processes, also of those that have ended.

    The backend of `conn` itself is left out: it is the session that measures.
    """
    own = conn.info.backend_pid
    postmaster = int(_fields(own)[1])
    ended = sum(int(ticks) for ticks in _fields(postmaster)[13:15])
    used = ended / _TICKS
    for child in (
        (_PROC / str(postmaster) / "task" / str(postmaster) / "children").read_text().split()
    ):
        if int(child) != own:
            with contextlib.suppress(FileNotFoundError):
                used += of_process(int(child))
    return used


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may contain spaces."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
