"""How long jobs wait and run, of the newest that took effect. Nothing here writes."""

from __future__ import annotations

from dataclasses import dataclass

from faultline.statements.statement import Statement

SAMPLED_JOBS = 200


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from being due to being claimed, and from there to the commit. None: no such job."""

    jobs: int
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    run_p50_seconds: float | None
    run_p95_seconds: float | None


def latency() -> Statement[Latency]:
    """Ids follow the time of enqueueing, so these are the jobs enqueued last among those in the ledger:
    of the last claim of each, from the end of the primary key."""
    return Statement(
        "SELECT count(*),"
        " percentile_disc(0.5) WITHIN GROUP (ORDER BY took.wait),"
        " percentile_disc(0.95) WITHIN GROUP (ORDER BY took.wait),"
        " percentile_disc(0.5) WITHIN GROUP (ORDER BY took.run),"
        " percentile_disc(0.95) WITHIN GROUP (ORDER BY took.run)"
        " FROM (SELECT job_id, committed_at FROM faultline.ledger ORDER BY job_id DESC LIMIT %s) AS l"
        " CROSS JOIN LATERAL (SELECT claimed_at, greatest(next_run_at, created_at) AS due_at"
        "  FROM faultline.jobs WHERE id = l.job_id LIMIT 1) AS j"
        " CROSS JOIN LATERAL (SELECT extract(epoch FROM j.claimed_at - j.due_at)::float8,"
        "  extract(epoch FROM l.committed_at - j.claimed_at)::float8) AS took (wait, run)",
        (SAMPLED_JOBS,),
        lambda rows: Latency(*rows[0]),
    )
