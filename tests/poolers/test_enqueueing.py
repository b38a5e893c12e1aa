"""Behind PgBouncer, a job is enqueued if and only if its transaction commits."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline import Faultline, IdempotencyConflict, Job
from faultline_drills.servers.pooler import Pooler

Connection = psycopg.Connection[Any]
JOBS = "SELECT count(*) FROM faultline.jobs"


@pytest.fixture
def own(pooled_url: str) -> Any:
    """A user's own connection, as PgBouncer in transaction mode needs it."""
    with psycopg.connect(pooled_url, prepare_threshold=None) as conn:
        yield conn


@pytest.fixture
def mail(pooled_app: Faultline) -> Any:
    @pooled_app.task()
    async def mail(job: Job, number: int) -> None: ...

    return mail


def test_a_job_exists_if_and_only_if_the_users_transaction_commits(
    own: Connection, mail: Any, conn: Connection
) -> None:
    mail.options(conn=own).enqueue(number=1)
    own.rollback()
    assert conn.execute(JOBS).fetchone() == (0,)
    with own.transaction():
        mail.options(conn=own).enqueue(number=1)
        assert conn.execute(JOBS).fetchone() == (0,)
    assert conn.execute(JOBS).fetchone() == (1,)


def test_a_connection_can_be_used_more_often_than_the_drivers_prepare_threshold(
    own: Connection, mail: Any, conn: Connection, pooled_url: str
) -> None:
    """With a second client, so that PgBouncer uses several server connections."""
    with psycopg.connect(pooled_url, prepare_threshold=None) as other:
        for number in range(8):
            with own.transaction():
                mail.options(conn=own).enqueue(number=number)
                with other.transaction():
                    mail.options(conn=other).enqueue(number=number)
    assert conn.execute(JOBS).fetchone() == (16,)


def test_a_key_is_one_job_for_all_clients_of_the_pooler(
    own: Connection, mail: Any, pooled_url: str
) -> None:
    with own.transaction():
        first = mail.options(conn=own, idempotency_key="k").enqueue(number=1)
    again = mail.options(idempotency_key="k").enqueue(number=1)
    assert again.job_id == first.job_id
    with pytest.raises(IdempotencyConflict):
        mail.options(idempotency_key="k").enqueue(number=2)


def test_a_producer_continues_after_a_restart_of_the_pooler(
    pooler: Pooler, mail: Any, conn: Connection
) -> None:
    mail.enqueue(number=1)
    pooler.kill()
    pooler.start()
    mail.enqueue(number=2)
    assert conn.execute(JOBS).fetchone() == (2,)
