"""Waits until a queue is empty, without the waiting costing the server anything that could be seen."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.processes import Deadline, PeerFailed

_FIRST_LOOK_SECONDS = 0.25
_NEAR_THE_END_SECONDS = 0.015
_LONGEST_PAUSE_SECONDS = 5.0
_WAITING_SECONDS = 0.1
# Counting may take at most this share of the time.
_SHARE_OF_COUNTING = 0.2
_STALLED_SECONDS = 30.0


def wait_until_finished(
    count: Callable[[], int],
    jobs: int,
    *,
    began_ns: int,
    deadline: Deadline,
    check: Callable[[], None],
) -> int:
    """The moment (monotonic, in ns) at which `count` answered that all jobs are finished.

    Each pause is half of the time that the rest should take: a handful of looks in all, close
    together only at the end. `check` raises when there is no point in waiting on.
    """
    pause, last_done, progress_at = _FIRST_LOOK_SECONDS, 0, time.monotonic()
    while True:
        time.sleep(min(pause, deadline.left))
        asked = time.monotonic()
        done = count()
        answered = time.monotonic_ns()
        if done >= jobs:
            return answered
        if done > last_done:
            progress_at = asked
        check()
        if not deadline.left or asked - progress_at > _STALLED_SECONDS:
            raise PeerFailed(f"stalled: {done} of {jobs} jobs were finished")
        cost = answered / 1e9 - asked
        per_job = (asked - began_ns / 1e9) / max(done, 1)
        rest = (jobs - done) * per_job
        shortest = max(_NEAR_THE_END_SECONDS, cost / _SHARE_OF_COUNTING)
        if done == last_done:  # whatever is left waits for something, a retry's delay perhaps
            shortest = max(shortest, _WAITING_SECONDS)
        pause = min(max(rest / 2, shortest), _LONGEST_PAUSE_SECONDS)
        last_done = done
