"""Measures the latency of a single job: until its start, and until its commit."""

from __future__ import annotations

import random
import time
from uuid import UUID

from faultline.postgres.sessions import Connection
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.bench_tasks import stamp
from faultline_drills.bench.bench_workers import BenchWorkers
from faultline_drills.bench.measurements import Times
from faultline_drills.bench.sampling import sample_times

_PAUSE_SECONDS = (0.015, 0.025)  # random, so that it does not follow the rhythm of a timer
_POLL_SECONDS = 0.0002
_STALLED_SECONDS = 30.0


class LatencyMeasurement:
    """Enqueues one job at a time, when the last one is done and the worker idle."""

    def __init__(self, conn: Connection, workers: BenchWorkers, settings: BenchSettings) -> None:
        self._conn, self._workers = conn, workers
        self._arguments = settings.arguments()
        self._random = random.Random(settings.seed)  # noqa: S311 - reproducible

    def measure_start(self, budget_seconds: float) -> Times:
        """Measure from the call of `enqueue` to the first line of the handler."""
        samples = sample_times(self._until_start, budget_seconds=budget_seconds)
        return Times("start_latency", "idle worker, enqueue → start", samples)

    def measure_commit(self, budget_seconds: float) -> Times:
        """Measure from the end of the handler until another session sees the ledger entry."""
        samples = sample_times(self._until_committed, budget_seconds=budget_seconds)
        return Times("commit_latency", "lone job, return → committed", samples)

    def _until_start(self) -> float:
        sent = time.monotonic()
        job_id = stamp.options(conn=self._conn).enqueue(**self._arguments).job_id
        self._pause()  # no query disturbs the job while it runs
        return self._wait(job_id, _PAUSE_SECONDS[0])[0] - sent

    def _until_committed(self) -> float:
        job_id = stamp.options(conn=self._conn).enqueue(**self._arguments).job_id
        started, seen = self._wait(job_id, _POLL_SECONDS)
        self._pause()
        return seen - started

    def _pause(self) -> None:
        time.sleep(self._random.uniform(*_PAUSE_SECONDS))

    def _wait(self, job_id: UUID, pause_seconds: float) -> tuple[float, float]:
        """The times at which the handler ran and at which this process saw the commit."""
        query = "SELECT result FROM faultline.ledger WHERE job_id = %s"
        deadline = time.monotonic() + _STALLED_SECONDS
        while (row := self._conn.execute(query, [job_id]).fetchone()) is None:
            self._workers.require_alive()
            if time.monotonic() > deadline:
                raise self._workers.failed(
                    f"a single job was not committed within {_STALLED_SECONDS:g} s"
                )
            time.sleep(pause_seconds)
        return float(row[0]), time.monotonic()
