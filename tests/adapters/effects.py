"""What the tests of all adapters look for: one payment for one job."""

from __future__ import annotations

from typing import Any

import psycopg

from faultline import StaleLease
from tests import running


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


def assert_superseded(raised: list[BaseException]) -> None:
    """One StaleLease, with what PostgreSQL knows of it."""
    [error] = raised
    assert type(error) is StaleLease
    assert (error.stale_token, error.current_token) == (1, 2)


def take_over(url: str, job_id: Any) -> None:
    """Let the lease of a running job end, as if its worker had stalled, and claim it."""
    with psycopg.connect(url, autocommit=True) as conn:
        running.wait_for_the_first_heartbeat(conn)  # the next one would notice the loss
        running.take_over(conn, job_id)
