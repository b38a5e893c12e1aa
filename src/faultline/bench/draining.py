"""How fast workers empty a queue, by what the database confirms."""

from __future__ import annotations

import time
from typing import Any

from faultline.bench.crew import Crew
from faultline.bench.enqueueing import BATCH
from faultline.bench.figures import Rate
from faultline.bench.sampling import REPEATS
from faultline.bench.settings import BenchSettings
from faultline.database import Connection
from faultline.task import Task

_PILOT_JOBS = 100
_MOST_JOBS = 50_000
_SHARE_OF_DRAINING = 0.6  # of a repeat's time: the jobs must be enqueued first
_STALLED_SECONDS = 30.0
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.004, 1.0
# Counting reads the whole ledger, so most of the time nobody counts.
_FIRST_LOOK = 0.7  # of the time that it should take


class Drain:
    """One kind of job, enqueued many at once for workers that are up and idle."""

    def __init__(
        self, conn: Connection, crew: Crew, task: Task[Any, Any], settings: BenchSettings
    ) -> None:
        self._conn, self._crew, self._task = conn, crew, task
        self._arguments = settings.arguments()

    def measure(self, name: str, title: str, budget_seconds: float) -> Rate:
        repeat_seconds = budget_seconds / REPEATS
        rate = self._pilot(repeat_seconds / 4)
        jobs = min(max(round(rate * repeat_seconds * _SHARE_OF_DRAINING), 50), _MOST_JOBS)
        rates = tuple(self.once(jobs, expected_seconds=jobs / rate) for _ in range(REPEATS))
        return Rate(name, title, jobs * REPEATS, rates)

    def _pilot(self, enough_seconds: float) -> float:
        """Jobs per second, from ever more of them until it took a while; it warms up everything, too."""
        jobs = _PILOT_JOBS
        while True:
            rate = self.once(jobs)
            if jobs / rate > enough_seconds or jobs * 10 > _MOST_JOBS:
                return rate
            jobs *= 10

    def once(self, jobs: int, *, expected_seconds: float = 0.0) -> float:
        """Jobs per second, from the COMMIT that shows them all at once to the last one's ledger entry."""
        before = self._finished()
        with self._conn.transaction():
            for start in range(0, jobs, BATCH):
                size = min(BATCH, jobs - start)
                self._task.enqueue_many([self._arguments] * size, conn=self._conn)
            began = time.monotonic()
        ended = self._wait(before, jobs, began, expected_seconds)
        return jobs / (ended - began)

    def _wait(self, before: int, jobs: int, began: float, expected_seconds: float) -> float:
        """When the database said that all are finished. Each pause is half of what the rest should
        take: the looks are close together only at the end."""
        time.sleep(expected_seconds * _FIRST_LOOK)
        last, progress_at = 0, began
        while True:
            done, now = self._finished() - before, time.monotonic()
            if done >= jobs:
                return now
            if done > last:
                last, progress_at = done, now
            self._crew.require_alive()
            if now - progress_at > _STALLED_SECONDS:
                raise self._crew.stalled(f"{done:,} of {jobs:,} jobs were done, then none")
            rest = (now - began) * (jobs - done) / done if done else 0.0
            time.sleep(min(max(rest / 2, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))

    def _finished(self) -> int:
        return int(self._conn.execute("SELECT count(*) FROM faultline.ledger").fetchall()[0][0])
