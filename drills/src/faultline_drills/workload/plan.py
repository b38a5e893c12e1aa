"""Plans: which fault a job causes in its worker, by token and point.

A plan maps a fencing token to an act and a point: `{"1": "kill@half"}`. It is part of the payload, so
one seed causes the same faults in the same jobs, whatever the subject.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

POINTS = ("start", "half", "before_commit", "after_commit")
ACTS = (
    "kill",
    "stop",
    "exit",
    "segfault",
    "raise",
    "block",
    "hang",
    "spin",
    "oom",
    "abort",
    "falter",
)
BLOCK_VARIABLE = "FAULTLINE_DRILL_BLOCK_SECONDS"


class PlannedFailure(Exception):
    """The plan says `raise` or `falter`."""


def act(plan: Mapping[str, str] | None, token: int, point: str) -> None:
    """Perform the act that the plan has for this token and point, if any."""
    what, _, where = (plan or {}).get(str(token), "").partition("@")
    if not what or where != point:
        return
    match what:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)  # stops every thread, heartbeats included
        case "exit":
            os._exit(17)
        case "abort":
            _leave_no_core()
            os.abort()
        case "segfault":
            _leave_no_core()
            ctypes.string_at(0)
        case "raise":
            raise PlannedFailure(f"attempt under token {token}, at {point}")
        case "falter":  # stop, and fail when resumed
            os.kill(os.getpid(), signal.SIGSTOP)
            raise PlannedFailure(f"attempt under token {token}, resumed late, at {point}")
        case "block":
            time.sleep(float(os.environ.get(BLOCK_VARIABLE, "2")))  # blocks the event loop
        case "hang":
            pass  # a coroutine waits instead: see _hang_if_planned
        case "spin":
            os.write(2, b'{"event": "endless_loop"}\n')  # the loop below logs nothing
            while True:
                pass
        case "oom":
            _exhaust_memory()
        case _:
            raise ValueError(f"a plan has no act {what!r}")


def _leave_no_core() -> None:
    """Write no core dump for a crash that is caused on purpose."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _exhaust_memory() -> None:
    """Allocate memory up to a safe limit, then end by SIGKILL, like an OOM kill."""
    import resource

    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = has + 256 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    hoard = []
    try:
        while True:
            hoard.append(bytearray(16 * 2**20))
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)


async def _hang_if_planned(plan: Mapping[str, str] | None, token: int, point: str) -> None:
    if (plan or {}).get(str(token)) == f"hang@{point}":
        await asyncio.Event().wait()


async def reach_point(plan: Mapping[str, str] | None, token: int, point: str) -> None:
    act(plan, token, point)
    await _hang_if_planned(plan, token, point)
