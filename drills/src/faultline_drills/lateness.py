"""Lateness: a worker that stops in the middle of its jobs, and comes back when others have them.

Self-fencing is off in it: only the database stands between its late writes and everybody else's.
"""

from __future__ import annotations

from typing import Any

from faultline_drills.arena import Arena
from faultline_drills.witness import Witness


def stalled_worker(arena: Arena, *options: str, **given: Any) -> Witness:
    """Start a worker that takes every job, and wait until a plan has stopped it."""
    jobs = str(max(1, arena.unfinished()))
    options = ("--no-self-fencing", "--concurrency", jobs, *options)
    late = arena.worker(*options, name="late", **given)
    arena.wait_until(lambda: late.is_stopped, "the stall", by=late)
    arena.inject("stop", late.name)
    return late


def wake_to_the_end(arena: Arena, late: Witness, *, attempts: int) -> None:
    """Let it go on until that many of its attempts are over. Its jobs carry the same plan, so it stops
    itself again until each has had its turn."""

    def is_over() -> bool:
        if late.is_stopped:
            late.resume()
        return len(late.heard("worker_exit")) >= attempts

    arena.wait_until(is_over, "the late worker's end", by=late)
