"""How many leases workers held at once, by the claims and ends in the database."""

from __future__ import annotations

from typing import Any

import psycopg

_MOST_LEASES = """
    WITH attempt AS (
        SELECT j.queue, l.worker, l.claimed_at AS began, l.ended_at AS ended
        FROM faultline.attempts_log AS l JOIN faultline.jobs AS j ON j.id = l.job_id
        UNION ALL
        SELECT j.queue, e.worker, j.claimed_at, e.committed_at
        FROM faultline.ledger AS e JOIN faultline.jobs AS j ON j.id = e.job_id),
    change AS (
        SELECT queue, worker, began AS at, 1 AS leases FROM attempt
        UNION ALL SELECT queue, worker, ended, -1 FROM attempt),
    held AS (
        SELECT queue, worker,
               sum(leases) OVER (PARTITION BY queue, worker ORDER BY at, leases) AS leases FROM change)
    SELECT queue, max(leases)::integer FROM held GROUP BY queue
"""


def most_leases(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """For each queue the most leases that one worker held at once.

    It covers all attempts that have ended, and needs no samples while the worker runs.
    """
    return dict(conn.execute(_MOST_LEASES).fetchall())
