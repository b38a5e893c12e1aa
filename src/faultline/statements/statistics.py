"""Figures about recent jobs: waiting and running times, failures, ledger inserts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from faultline.statements.statement import Statement

SAMPLED_JOBS = 200  # for waiting and running times
FAILURES_SECONDS = 24 * 3600.0
FAILURES_READ = 500  # the newest; the inspector reads them every second
FAILURES_OF_EACH_QUEUE = 100
MAX_QUEUES = 100
ERROR_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from due to claimed and from claimed to committed; None without jobs."""

    jobs: int
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    run_p50_seconds: float | None
    run_p95_seconds: float | None


def latency() -> Statement[Latency]:
    """The latency of the SAMPLED_JOBS newest succeeded jobs, by the primary key.

    The times are those of each job's last claim.
    """
    return Statement(
        """
        SELECT count(*),
            percentile_disc(0.5) WITHIN GROUP (ORDER BY took.wait),
            percentile_disc(0.95) WITHIN GROUP (ORDER BY took.wait),
            percentile_disc(0.5) WITHIN GROUP (ORDER BY took.run),
            percentile_disc(0.95) WITHIN GROUP (ORDER BY took.run)
        FROM (SELECT job_id, committed_at FROM faultline.ledger ORDER BY job_id DESC LIMIT %s) AS l
        CROSS JOIN LATERAL (SELECT claimed_at, greatest(next_run_at, created_at) AS due_at
            FROM faultline.jobs WHERE id = l.job_id LIMIT 1) AS j
        CROSS JOIN LATERAL (SELECT extract(epoch FROM j.claimed_at - j.due_at)::float8,
            extract(epoch FROM l.committed_at - j.claimed_at)::float8) AS took (wait, run)
        """,
        (SAMPLED_JOBS,),
        lambda rows: Latency(*rows[0]),
    )


# Reads the newest failures of each queue from the index on failed jobs, and merges them.
_FAILURES: LiteralString = """
    WITH RECURSIVE names (queue) AS (
        (SELECT q.queue::text FROM faultline.jobs AS q WHERE q.state = 'failed'
            ORDER BY q.queue LIMIT 1)
        UNION ALL SELECT (SELECT q.queue FROM faultline.jobs AS q WHERE q.state = 'failed'
            AND q.queue > n.queue ORDER BY q.queue LIMIT 1) FROM names AS n WHERE n.queue IS NOT NULL),
        failing AS (SELECT queue FROM names WHERE queue IS NOT NULL LIMIT %s)
    SELECT j.task, j.queue, j.failed_reason, left(j.last_error, %s), j.finished_at, j.id
    FROM failing AS f CROSS JOIN LATERAL (SELECT * FROM faultline.jobs AS j
        WHERE j.state = 'failed' AND j.queue = f.queue
        AND j.finished_at > statement_timestamp() - make_interval(secs => %s)
        ORDER BY j.finished_at DESC LIMIT %s) AS j WHERE j.failed_reason <> 'cancelled'
    ORDER BY j.finished_at DESC LIMIT %s
    """


@dataclass(frozen=True, slots=True)
class FailedJob:
    task: str
    queue: str
    reason: str
    error: str | None  # its first ERROR_LENGTH characters
    failed_at: datetime
    job_id: UUID


def failures() -> Statement[list[FailedJob]]:
    """The newest jobs that failed permanently in the last day, without cancelled ones."""
    return Statement(
        _FAILURES,
        (MAX_QUEUES, ERROR_LENGTH, FAILURES_SECONDS, FAILURES_OF_EACH_QUEUE, FAILURES_READ),
        lambda rows: [FailedJob(*row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class LedgerSample:
    at_seconds: float  # by the database's clock
    entries: int


def ledger_sample() -> Statement[LedgerSample]:
    """How many rows were ever inserted into the ledger, from PostgreSQL's statistics."""
    return Statement(
        """
        SELECT extract(epoch FROM clock_timestamp())::float8,
            pg_stat_get_tuples_inserted('faultline.ledger'::regclass)
        """,
        (),
        lambda rows: LedgerSample(*rows[0]),
    )
