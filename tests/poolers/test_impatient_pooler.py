"""Workers and producers survive a PgBouncer that ends long and idle connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, JobState
from faultline.reconciler import Reconciler
from faultline.retry_policy import RetryPolicy
from faultline_drills.servers.pooler import TRANSACTION, pooler_to
from tests.running import EventTap, ended, working
from tests.waiting import wait_until

from .conftest import require_pgbouncer

Connection = psycopg.Connection[Any]
LIMITS = {
    "query_timeout": "2",  # not less: on a busy machine the other tasks would exceed it
    "client_idle_timeout": "1",
    "server_idle_timeout": "1",
    "server_lifetime": "1",
}


@pytest.fixture
def app(database_url: str, conn: Connection) -> Iterator[Faultline]:
    """With the check interval that docs/networks.md advises.

    Without it PostgreSQL would continue a query that PgBouncer ended, and keep the job's row locked.
    """
    require_pgbouncer()
    conn.execute(
        f"ALTER DATABASE {conn.info.dbname} SET client_connection_check_interval = '100ms'"
    )
    with pooler_to(database_url, mode=TRANSACTION, settings=LIMITS) as pooler:
        application = Faultline(pooler.url(database_url))
        yield application
        application.close()


def test_a_query_ended_by_the_pooler_fails_its_attempt_and_idle_connections_cost_nothing(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    @app.task(max_attempts=5, retry=RetryPolicy(base_seconds=0.05, cap_seconds=0.05))
    async def slow_query(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("SELECT pg_sleep(%s)", [10 if job.token == 1 else 0])

    @app.task(max_attempts=1)
    async def once(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("SELECT 1")

    @app.task(max_attempts=1)
    async def batched(job: Job) -> None: ...

    quick = [task.enqueue().job_id for task in (once, batched)]
    slow = slow_query.enqueue().job_id
    with working(app, companions=[Reconciler(app.database_url).run]):
        assert [ended(app, job).state for job in quick] == [JobState.SUCCEEDED] * 2
        assert ended(app, slow).state is JobState.SUCCEEDED
        idle_since = time.monotonic()
        wait_until(lambda: time.monotonic() > idle_since + 1.5, "the end of idle connections")
        later = [task.enqueue().job_id for task in (once, batched)]
        assert [ended(app, job).state for job in later] == [JobState.SUCCEEDED] * 2
    [retried] = events.of("job_retry_scheduled")
    assert retried["job_id"] == str(slow)
    assert conn.execute("SELECT count(*) FROM faultline.ledger").fetchone() == (5,)
