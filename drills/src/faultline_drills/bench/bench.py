"""Runs all measurements of the bench and divides the time budget among them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from faultline.postgres.sessions import Connection, connect
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.bench_tasks import BATCH_TASKS, noop, write
from faultline_drills.bench.bench_workers import BenchNotRun, BenchWorkers
from faultline_drills.bench.drain_rate import DrainMeasurement
from faultline_drills.bench.enqueue_rate import measure_bulk_enqueue, measure_single_enqueue
from faultline_drills.bench.interpretation import interpret
from faultline_drills.bench.job_latency import LatencyMeasurement
from faultline_drills.bench.measurements import Measurement, Times
from faultline_drills.bench.recommendations import Recommendation, recommend
from faultline_drills.bench.server_baseline import (
    ServerFacts,
    describe,
    measure_commits,
    measure_round_trip,
)
from faultline_drills.bench.settings_trials import try_settings
from faultline_drills.bench.trials import Trials
from faultline_drills.recovery import measure_recovery

# In the schema `drill`, which is dropped even if the account cannot create a database.
_TABLES = """
    CREATE SCHEMA drill;
    CREATE TABLE drill.bench_commits (n int NOT NULL);
    CREATE TABLE drill.bench_effects (job_id uuid PRIMARY KEY);
"""
# The share of the budget for each measurement; the rest is for starting processes.
_SHARES = {
    "round trips": 0.02,
    "bare commits": 0.05,
    "start latency": 0.10,
    "commit latency": 0.05,
    "draining no-op jobs": 0.14,
    "draining jobs with a write": 0.12,
    "trying settings": 0.20,
    "killing workers": 0.20,
    "single enqueues": 0.04,
    "bulk enqueues": 0.05,
}
STEPS = tuple(_SHARES)
_ESTIMATED_RECOVERY_SECONDS = 0.5
_MAX_KILLS = 20

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class BenchReport:
    settings: BenchSettings
    server: ServerFacts
    measurements: tuple[Measurement, ...]  # in the order of the table
    interpretation: list[str]
    trials: Trials
    recommendations: list[Recommendation]
    seconds: float

    def facts(self) -> dict[str, Any]:
        return {
            "settings": asdict(self.settings),
            "server": {"version": self.server.version, **self.server.settings},
            "warnings": self.server.warnings,
            "figures": {
                measurement.name: {"title": measurement.title, **measurement.facts()}
                for measurement in self.measurements
            },
            "interpretation": self.interpretation,
            "tried": self.trials.facts(),
            "recommendations": [each.facts() for each in self.recommendations],
            "seconds": round(self.seconds, 1),
        }


def prepare(conn: Connection) -> None:
    """Create the bench's tables."""
    conn.execute(_TABLES)


def run_bench(
    url: str, settings: BenchSettings, *, on_step: OnStep = lambda step: None
) -> BenchReport:
    """Measure on the (scratch) database at `url`, in which Faultline is installed."""

    def begin(step: str) -> float:
        on_step(step)
        return settings.seconds * _SHARES[step]

    began = time.monotonic()
    with connect(url, application_name="faultline bench") as conn:
        prepare(conn)
        server = describe(conn)
        round_trip = measure_round_trip(conn, begin("round trips"))
        commit, unflushed = measure_commits(conn, begin("bare commits"))
        with BenchWorkers(url, settings) as workers:
            start_seconds = workers.start()
            lone = LatencyMeasurement(conn, workers, settings)
            start = lone.measure_start(begin("start latency"))
            committed = lone.measure_commit(begin("commit latency"))
            drain = DrainMeasurement(conn, workers, noop, settings).measure(
                "drain", "drain, no-op jobs", begin("draining no-op jobs")
            )
            writes = DrainMeasurement(conn, workers, write, settings).measure(
                "drain_write",
                "drain, one write each, fenced",
                begin("draining jobs with a write"),
            )
        trials = try_settings(url, conn, settings, begin("trying settings"), start_seconds)
        _check_effects(conn)
        recovery = _measure_recovery(url, begin("killing workers"), start_seconds)
        # Last, because no worker runs the jobs that they enqueue.
        single = measure_single_enqueue(conn, settings, begin("single enqueues"))
        bulk = measure_bulk_enqueue(conn, settings, begin("bulk enqueues"))
    return BenchReport(
        settings=settings,
        server=server,
        measurements=(
            *(round_trip, commit, unflushed),
            *(bulk, single, drain, writes),
            *(start, committed, recovery),
        ),
        interpretation=interpret(
            round_trip, commit, unflushed, drain, writes, slots=settings.slots
        ),
        trials=trials,
        recommendations=recommend(trials),
        seconds=time.monotonic() - began,
    )


def _measure_recovery(url: str, budget_seconds: float, start_seconds: float) -> Times:
    """Measure as many kills as fit into the budget.

    Two workers start first, and another one after each kill.
    """
    left = budget_seconds - 2 * start_seconds
    kills = int(left / (start_seconds + _ESTIMATED_RECOVERY_SECONDS))
    report = measure_recovery(url, kills=min(max(kills, 1), _MAX_KILLS))
    samples = tuple((seconds,) for seconds in report.seconds)
    return Times("recovery", "SIGKILL → running elsewhere", samples)


def _check_effects(conn: Connection) -> None:
    """Check that every counted job has written its row."""
    [(effects, entries)] = conn.execute(
        "SELECT (SELECT count(*) FROM drill.bench_effects), count(*) FROM faultline.ledger AS l"
        " JOIN faultline.jobs AS j ON j.id = l.job_id WHERE j.task = ANY (%s)",
        [[task.name for task in (write, *BATCH_TASKS.values())]],
    ).fetchall()
    if effects != entries:
        raise BenchNotRun(f"{entries:,} jobs are in the ledger, but {effects:,} wrote their row")
