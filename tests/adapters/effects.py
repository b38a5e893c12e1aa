"""What the tests of all adapters look for: one payment for one job."""

from __future__ import annotations

from typing import Any

import psycopg


def payments(url: str) -> int:
    with psycopg.connect(url) as conn:
        return paid(conn)


def paid(conn: psycopg.Connection[Any]) -> int:
    [(count,)] = conn.execute("SELECT count(*) FROM payments WHERE invoice = 42").fetchall()
    return int(count)


def paid_once(conn: psycopg.Connection[Any]) -> None:
    count = paid(conn)
    assert count == 1, f"invoice 42 was paid {count} times"


def jobs(url: str) -> int:
    with psycopg.connect(url) as conn:
        [(count,)] = conn.execute("SELECT count(*) FROM faultline.jobs").fetchall()
        return int(count)


def take_over(url: str, job_id: Any) -> None:
    """Let the lease of a running job end, as if its worker had stalled, and claim it.

    In one transaction: otherwise the test's own worker may claim the job again.
    """
    with psycopg.connect(url) as conn:
        conn.execute(
            "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 s'"
            " WHERE id = %s AND state = 'running'",
            [job_id],
        )
        conn.execute("SELECT faultline.reconcile(10)")
        [claimed] = conn.execute(
            "SELECT job_id FROM faultline.claim('other', '{default}', 1, '1 minute')"
        ).fetchall()
        assert claimed[0] == job_id
