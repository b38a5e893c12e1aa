"""Settings of the account (ALTER ROLE … SET) do not keep a worker from its work."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from faultline import Faultline, Job, JobState, RetryPolicy
from faultline.statements import protocol
from tests.conftest import NewDatabase
from tests.running import EventTap, ended, working

SETTINGS = {
    "DateStyle": "'German, DMY'",
    "IntervalStyle": "'sql_standard'",
    "extra_float_digits": "-15",
    "bytea_output": "'escape'",
    "client_encoding": "'LATIN1'",
    "default_transaction_isolation": "'serializable'",
    "default_transaction_read_only": "on",
    "statement_timeout": "'2ms'",
    "lock_timeout": "'1ms'",
    "idle_in_transaction_session_timeout": "'1ms'",
    "search_path": "tenant",
    "row_security": "off",
}


@pytest.fixture(scope="module")
def database(new_database: NewDatabase, template: str) -> Iterator[str]:
    with new_database(template) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("CREATE TABLE effects (job uuid, price float8, note text)")
            conn.execute("CREATE SCHEMA tenant CREATE TABLE tenant.effects (LIKE public.effects)")
        yield url


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_worker_writes_under_any_setting_of_its_account(
    database: str, events: EventTap, setting: str
) -> None:
    """In this one database, so that the sessions of other tests are not affected."""
    insert = "INSERT INTO effects VALUES (%s, %s, %s)"
    price, note = 0.1 + 0.2, "Größe: 5 €"
    app = Faultline(database)
    again = {"max_attempts": 50, "retry": RetryPolicy(base_seconds=0.01, cap_seconds=0.05)}

    @app.task(**again)
    def plain(job: Job, price: float, note: str) -> None:
        with job.transaction() as tx:
            tx.execute(insert, [job.id, price, note])

    @app.task(**again)
    async def waiting(job: Job, price: float, note: str) -> None:
        async with job.transaction() as tx:
            await tx.execute(insert, [job.id, price, note])

    with psycopg.connect(database, autocommit=True) as conn:
        here = f"IN DATABASE {conn.info.dbname}"
        conn.execute(f"ALTER ROLE CURRENT_USER {here} SET {setting} = {SETTINGS[setting]}")
        try:
            jobs = [task.enqueue(price=price, note=note).job_id for task in (plain, waiting)]
            with working(app):
                records = [ended(app, job_id) for job_id in jobs]
            overlap = app.execute(
                protocol.record_rejection(uuid4(), stale_token=1, worker="w", reason="unknown_job")
            )
        finally:
            app.close()
            conn.execute(f"ALTER ROLE CURRENT_USER {here} RESET {setting}")
        schema = "tenant" if setting == "search_path" else "public"
        written = conn.execute(
            f"SELECT price, note FROM {schema}.effects WHERE job = ANY (%s)", [jobs]
        ).fetchall()
    assert [record.state for record in records] == [JobState.SUCCEEDED] * 2, records
    assert written == [(price, note)] * 2
    assert overlap == timedelta(0)
    assert events.of("database_unavailable") == []
