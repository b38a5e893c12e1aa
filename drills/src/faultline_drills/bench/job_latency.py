"""How long one job takes when nothing else is there: until it starts, and until it is committed."""

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

_REST_SECONDS = (0.015, 0.025)  # drawn, so as not to keep step with anything that has a beat
_LOOK_SECONDS = 0.0002
_STALLED_SECONDS = 30.0


class LatencyMeasurement:
    """Jobs one after the other, each enqueued when the last is done and the worker is idle again."""

    def __init__(self, conn: Connection, workers: BenchWorkers, settings: BenchSettings) -> None:
        self._conn, self._workers = conn, workers
        self._arguments = settings.arguments()
        self._random = random.Random(settings.seed)  # noqa: S311 - a bench can be repeated

    def measure_start(self, budget_seconds: float) -> Times:
        """From right before `enqueue` in this process to the handler's first line in the worker."""
        samples = sample_times(self._until_start, budget_seconds=budget_seconds)
        return Times("start_latency", "idle worker, enqueue → start", samples)

    def measure_commit(self, budget_seconds: float) -> Times:
        """From the handler's end to another session seeing the job in the ledger."""
        samples = sample_times(self._until_committed, budget_seconds=budget_seconds)
        return Times("commit_latency", "lone job, return → committed", samples)

    def _until_start(self) -> float:
        sent = time.monotonic()
        job_id = stamp.enqueue(**self._arguments, conn=self._conn).job_id
        self._rest()  # nobody asks while it runs
        return self._wait(job_id, _REST_SECONDS[0])[0] - sent

    def _until_committed(self) -> float:
        job_id = stamp.enqueue(**self._arguments, conn=self._conn).job_id
        started, seen = self._wait(job_id, _LOOK_SECONDS)
        self._rest()
        return seen - started

    def _rest(self) -> None:
        time.sleep(self._random.uniform(*_REST_SECONDS))

    def _wait(self, job_id: UUID, pause_seconds: float) -> tuple[float, float]:
        """When the handler ran, and when this process saw the job committed."""
        query = "SELECT result FROM faultline.ledger WHERE job_id = %s"
        deadline = time.monotonic() + _STALLED_SECONDS
        while (row := self._conn.execute(query, [job_id]).fetchone()) is None:
            self._workers.require_alive()
            if time.monotonic() > deadline:
                raise self._workers.failed(f"a lone job was not done within {_STALLED_SECONDS:g} s")
            time.sleep(pause_seconds)
        return float(row[0]), time.monotonic()
