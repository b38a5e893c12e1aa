"""Lateness: a worker that stops in the middle of its jobs, and comes back when others have them.

Self-fencing is off in it: only the database stands between its late writes and everybody else's.
"""

from __future__ import annotations

from typing import Any

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess


def stalled_worker(drill: DrillContext, *options: str, **given: Any) -> ObservedProcess:
    """Start a worker that takes every job, and wait until a plan has stopped it."""
    jobs = str(max(1, drill.unfinished()))
    options = ("--no-self-fencing", "--concurrency", jobs, *options)
    late = drill.worker(*options, name="late", **given)
    drill.wait_until(lambda: late.is_stopped, "the stall", by=late)
    drill.inject("stop", late.name)
    return late


def resume_until_done(drill: DrillContext, late: ObservedProcess, *, attempts: int) -> None:
    """Let it go on until that many of its attempts are over. Its jobs carry the same plan, so it stops
    itself again until each has had its turn."""

    def is_over() -> bool:
        if late.is_stopped:
            late.resume()
        return len(late.events_named("worker_exit")) >= attempts

    drill.wait_until(is_over, "the late worker's end", by=late)
