"""A block checks the fence and locks the job when it opens."""

from __future__ import annotations

import psycopg
import pytest

from faultline import Faultline, Job, JobState
from tests.running import Connection, count, rejections, take_over, value, work_off, working
from tests.waiting import wait_until


def test_the_body_of_a_block_does_not_run_on_a_stale_worker(
    app: Faultline, conn: Connection
) -> None:
    """The body may call the outside world before its first statement."""
    called: list[str] = []

    @app.task()
    def calls_outside(job: Job) -> None:
        take_over(conn, job.id)
        with job.transaction() as tx:
            called.append("outside")
            tx.execute("SELECT 1")

    enqueued = calls_outside.enqueue()
    with working(app):
        wait_until(lambda: rejections(conn, enqueued.job_id), "the refusal")
    assert called == []


def test_a_job_is_locked_from_the_opening_of_its_block(app: Faultline, conn: Connection) -> None:
    """Another worker cannot take the job between the opening and the first statement."""

    @app.task()
    def waits(job: Job) -> None:
        with job.transaction() as tx:
            with pytest.raises(psycopg.errors.LockNotAvailable):
                value(conn, "SELECT 1 FROM faultline.jobs WHERE id = %s FOR UPDATE NOWAIT", job.id)
            tx.execute("SELECT 1")

    record = work_off(app, waits.enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert count(conn, "faultline.ledger") == 1
