"""Measures how fast workers drain a queue, by counting ledger entries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, LiteralString
from uuid import UUID

from faultline.postgres.sessions import Connection
from faultline.task import Task
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.bench_workers import BenchWorkers
from faultline_drills.bench.enqueue_rate import BATCH
from faultline_drills.bench.measurements import MeasuredRate
from faultline_drills.bench.sampling import REPEATS

_PILOT_JOBS = 100
_MIN_JOBS, _MAX_JOBS = 50, 50_000
_SHARE_OF_DRAINING = 0.6  # of a repeat's time; the rest is for enqueueing
_STALLED_SECONDS = 30.0
_POLL_SECONDS = 0.004
_WATCHED_JOBS = 50  # counting reads the whole ledger, so it waits until these jobs are done


class DrainMeasurement:
    """Enqueues many jobs of one task for idle workers."""

    def __init__(
        self, conn: Connection, workers: BenchWorkers, task: Task[Any, Any], settings: BenchSettings
    ) -> None:
        self._conn, self._workers, self._task = conn, workers, task
        self._arguments = settings.arguments()

    def measure(self, name: str, title: str, budget_seconds: float) -> MeasuredRate:
        repeat_seconds = budget_seconds / REPEATS
        rate = self._pilot(repeat_seconds / 4)
        fitting = round(rate * repeat_seconds * _SHARE_OF_DRAINING)
        jobs = min(max(fitting, _MIN_JOBS), _MAX_JOBS)
        rates = tuple(self._once(jobs) for _ in range(REPEATS))
        return MeasuredRate(name, title, jobs * REPEATS, rates)

    def rate(self, seconds: float) -> float:
        """Jobs per second: the better of two drains of about so many seconds together."""
        fitting = round(self._pilot(seconds / 6) * seconds * _SHARE_OF_DRAINING / 2)
        jobs = min(max(fitting, _MIN_JOBS), _MAX_JOBS)
        return max(self._once(jobs) for _ in range(2))

    def _pilot(self, min_seconds: float) -> float:
        """Jobs per second, from runs that grow until one takes long enough; also warms up."""
        jobs = _PILOT_JOBS
        while True:
            rate = self._once(jobs)
            if jobs / rate > min_seconds or jobs * 10 > _MAX_JOBS:
                return rate
            jobs *= 10

    def _once(self, jobs: int) -> float:
        """Jobs per second, from the COMMIT that enqueues them to the last ledger entry."""
        before = self._finished()
        ids: list[UUID] = []
        with self._conn.transaction():
            for start in range(0, jobs, BATCH):
                size = min(BATCH, jobs - start)
                made = self._task.options(conn=self._conn).enqueue_many([self._arguments] * size)
                ids += [each.job_id for each in made]
            began = time.monotonic()
        self._wait_for(ids[:: max(1, jobs // _WATCHED_JOBS)])
        deadline = time.monotonic() + _STALLED_SECONDS
        while True:
            asked = time.monotonic()
            done = self._finished() - before
            if done >= jobs:
                return jobs / (asked - began)
            if asked > deadline:
                raise self._workers.failed(
                    f"{done:,} of {jobs:,} jobs were committed, then no more"
                )
            time.sleep(_POLL_SECONDS)

    def _wait_for(self, watched: list[UUID]) -> None:
        """Wait until these jobs, evenly spread over all, are in the ledger."""
        query = "SELECT count(*) FROM faultline.ledger WHERE job_id = ANY (%s)"
        last, progress_at = 0, time.monotonic()
        while (done := self._count(query, [watched])) < len(watched):
            self._workers.require_alive()
            if done > last:
                last, progress_at = done, time.monotonic()
            if time.monotonic() - progress_at > _STALLED_SECONDS:
                raise self._workers.failed(
                    f"{done / len(watched):.0%} of the jobs were committed, then no more"
                )
            time.sleep(_POLL_SECONDS)

    def _finished(self) -> int:
        return self._count("SELECT count(*) FROM faultline.ledger")

    def _count(self, query: LiteralString, params: Sequence[Any] = ()) -> int:
        return int(self._conn.execute(query, params).fetchall()[0][0])
