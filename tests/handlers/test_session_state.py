"""A handler's changes to its session end with its job; a hook sets what jobs need."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from faultline import Faultline, Job, JobState
from tests.running import Connection, ended, value, work_off, working

COLOURS = ("async", "plain")
LITTER = (
    "SET search_path = elsewhere",
    "SET DateStyle = 'German'",
    "SET default_transaction_isolation = 'serializable'",
    "SET default_transaction_read_only = off",
    "SET ROLE pg_monitor",
    "RESET ROLE",
    "SELECT set_config('shop.tenant', 'first', false)",
    "LISTEN gossip",
    "SELECT pg_advisory_lock(42)",
    "CREATE TEMP TABLE leftover (note text)",
    "DECLARE held CURSOR WITH HOLD FOR SELECT 1",
    "SELECT nextval('public.numbers')",
)
STATE = """
    SELECT pg_backend_pid(), current_setting('search_path'), current_setting('DateStyle'),
           current_setting('transaction_isolation'), current_setting('default_transaction_read_only'),
           current_user = session_user, coalesce(current_setting('shop.tenant', true), ''),
           ARRAY(SELECT pg_listening_channels()),
           (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
           to_regclass('pg_temp.leftover') IS NULL, (SELECT count(*) FROM pg_cursors WHERE is_holdable),
           (SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql) > 0
"""
CLEAN = ["ISO, MDY", "read committed", "on", True, "", [], 0, True, 0, True]


def define(app: Faultline, *, fails: bool = False) -> None:
    @app.task(name="async", max_attempts=1)
    async def on_loop(job: Job, litter: list[str]) -> None:
        async with job.transaction() as tx:
            cursor = await tx.execute(STATE, prepare=True)
            row = await cursor.fetchone()
            job.result = [str(each) if isinstance(each, bytes) else each for each in row or ()]
            for statement in litter:
                await tx.execute(statement.encode())
            if fails and litter:
                raise ValueError("after it")

    @app.task(name="plain", max_attempts=1)
    def in_thread(job: Job, litter: list[str]) -> None:
        with job.transaction() as tx:
            job.result = list(tx.execute(STATE, prepare=True).fetchone() or ())
            for statement in litter:
                tx.execute(statement.encode())
            if fails and litter:
                raise ValueError("after it")


@pytest.mark.parametrize("colour", COLOURS)
def test_a_jobs_session_is_as_if_no_job_had_used_it_before(
    app: Faultline, conn: Connection, colour: str
) -> None:
    conn.execute("CREATE SCHEMA elsewhere; CREATE SEQUENCE numbers")
    define(app)
    run = app.find_task(colour)
    with working(app, concurrency=1):
        first = ended(app, run.enqueue(litter=[]).job_id).result
        second = ended(app, run.enqueue(litter=LITTER).job_id).result
        third = ended(app, run.enqueue(litter=[]).job_id).result
    assert first[0] == second[0] == third[0], "they had the same session"
    assert third[1] == first[1], "its search_path is that of the account"
    assert [second[2:], third[2:]] == [CLEAN, CLEAN]


@pytest.mark.parametrize("colour", COLOURS)
def test_the_sequences_of_another_job_are_forgotten(
    app: Faultline, conn: Connection, colour: str
) -> None:
    conn.execute("CREATE SEQUENCE numbers")
    define(app)
    run = app.find_task(colour)
    with working(app, concurrency=1):
        ended(app, run.enqueue(litter=["SELECT nextval('numbers')"]).job_id)
        record = ended(app, run.enqueue(litter=["SELECT lastval()"]).job_id)
    assert record.state is JobState.FAILED
    assert "lastval is not yet defined" in str(record.last_error)


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "fails"])
@pytest.mark.parametrize("colour", COLOURS)
def test_locks_of_the_session_are_released_when_the_block_ends(
    app: Faultline, conn: Connection, colour: str, fails: bool
) -> None:
    """They outlive a rollback; an idle session would keep them from other sessions."""
    define(app, fails=fails)
    with working(app, concurrency=1):
        ended(app, app.find_task(colour).enqueue(litter=["SELECT pg_advisory_lock(42)"]).job_id)
        conn.execute("SET lock_timeout = '30s'")
        conn.execute("SELECT pg_advisory_lock(42)")


@pytest.mark.parametrize("colour", COLOURS)
def test_a_session_with_statements_that_a_handler_prepared_is_not_used_again(
    app: Faultline, conn: Connection, colour: str
) -> None:
    define(app)
    run = app.find_task(colour)
    prepare = ["PREPARE mine AS SELECT 1"]
    with working(app, concurrency=1):
        first = ended(app, run.enqueue(litter=prepare).job_id)
        second = ended(app, run.enqueue(litter=prepare).job_id)
    assert (first.state, second.state) == (JobState.SUCCEEDED, JobState.SUCCEEDED)
    assert first.result[0] != second.result[0]


# ── a hook for each transaction ──────────────────────────────────────────────────────────────────


def tenant_of(job: Job) -> sql.Composed:
    return sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(job.queue))


def plainly(job: Job, conn: Any) -> Awaitable[None] | None:
    answer = conn.execute(tenant_of(job))
    return None if isinstance(conn, psycopg.Connection) else answer


@pytest.mark.parametrize("colour", COLOURS)
def test_a_hook_chooses_the_schema_of_each_jobs_tenant(
    database_url: str, conn: Connection, colour: str
) -> None:
    app = Faultline(database_url, prepare_transaction=plainly)

    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with job.fenced() as tx:
            await tx.execute("INSERT INTO effects VALUES ('step')")
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ('job')")

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with job.fenced() as tx:
            tx.execute("INSERT INTO effects VALUES ('step')")
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES ('job')")

    for tenant in ("acme", "globex"):
        conn.execute(f"CREATE SCHEMA {tenant}; CREATE TABLE {tenant}.effects (note text)")
    with working(app, concurrency=1, queues=("acme", "globex")):
        for tenant in ("acme", "globex", "acme"):
            record = ended(app, app.find_task(colour).options(queue=tenant).enqueue().job_id)
            assert record.state is JobState.SUCCEEDED, record.last_error
    app.close()
    assert value(conn, "SELECT count(*) FROM acme.effects") == 4
    assert value(conn, "SELECT count(*) FROM globex.effects") == 2


def test_a_hook_that_raises_fails_the_attempt(database_url: str, conn: Connection) -> None:
    def refuses(job: Job, conn: Any) -> None:
        raise LookupError("no such tenant")

    app = Faultline(database_url, prepare_transaction=refuses)

    @app.task(max_attempts=1)
    def handler(job: Job) -> None:
        with job.transaction():
            raise AssertionError("not reached")

    record = work_off(app, handler.enqueue().job_id)
    app.close()
    assert (record.state, "no such tenant" in str(record.last_error)) == (JobState.FAILED, True)
