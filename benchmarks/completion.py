"""Waits until all jobs are finished, with as few counting queries as possible."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.processes import Deadline, PeerFailed

_FIRST_PAUSE_SECONDS = 0.25
_MIN_PAUSE_SECONDS = 0.015
_MAX_PAUSE_SECONDS = 5.0
_NO_PROGRESS_PAUSE_SECONDS = 0.1
# Counting may use at most this share of the time.
_MAX_COUNTING_SHARE = 0.2
_STALLED_SECONDS = 30.0


class Finished(NamedTuple):
    at_ns: int  # by the monotonic clock
    jobs: int


def wait_until_finished(
    count: Callable[[], int],
    jobs: int,
    *,
    began_ns: int,
    deadline: Deadline,
    check: Callable[[], None],
    limit_seconds: float = float("inf"),
) -> Finished:
    """Return when `count` reported all jobs finished, or how many were at the limit.

    Each pause is half of the expected remaining time, so the jobs are counted a few times in all, and often
    only near the end. `check` raises if waiting is useless.
    """
    pause, last_done, progress_at = _FIRST_PAUSE_SECONDS, 0, time.monotonic()
    stop_at = began_ns / 1e9 + limit_seconds
    while True:
        before_stop = stop_at - time.monotonic()
        time.sleep(min(pause, deadline.left, before_stop if before_stop > 0 else pause))
        asked_at = time.monotonic()
        done = count()
        counted_at_ns = time.monotonic_ns()
        if done >= jobs or (done and asked_at >= stop_at):
            return Finished(counted_at_ns, min(done, jobs))
        if done > last_done:
            progress_at = asked_at
        check()
        if not deadline.left or asked_at - progress_at > _STALLED_SECONDS:
            raise PeerFailed(f"stalled: {done} of {jobs} jobs were finished")
        cost = counted_at_ns / 1e9 - asked_at
        per_job = (asked_at - began_ns / 1e9) / max(done, 1)
        rest = (jobs - done) * per_job
        shortest = max(_MIN_PAUSE_SECONDS, cost / _MAX_COUNTING_SHARE)
        if done == last_done:  # the remaining jobs wait; for example, for the delay of a retry
            shortest = max(shortest, _NO_PROGRESS_PAUSE_SECONDS)
        pause = min(max(rest / 2, shortest), _MAX_PAUSE_SECONDS)
        last_done = done
