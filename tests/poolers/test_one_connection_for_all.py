"""With one server connection for all clients, nothing may be left on it."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from faultline import Faultline, Job, JobState
from faultline.api.application import create_api
from faultline.errors import FenceNotHeld
from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.postgres.sessions import connect, run
from faultline.reconciler import Reconciler
from faultline.statements import protocol
from faultline.statements.statement import Statement
from tests.api.served import make_key
from tests.cli.conftest import invoke
from tests.running import EventTap, ended, working
from tests.waiting import wait_until

Connection = psycopg.Connection[Any]
# Settings that PgBouncer itself restores per client.
TRACKED = (
    "application_name",
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
)
STATE = """
    SELECT jsonb_build_object(
        'backend', pg_backend_pid(),
        'role', current_user,
        'settings', (SELECT jsonb_object_agg(name, setting) FROM pg_settings
                     WHERE (source = 'session' OR name LIKE 'faultline.%%') AND name <> ALL (%s)),
        'ours', jsonb_build_array(
            nullif(current_setting('faultline.verb', true), ''),
            nullif(current_setting('faultline.batch', true), ''),
            nullif(current_setting('faultline.held_jobs', true), '')),
        'locks', (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
        'listening', (SELECT count(*) FROM pg_listening_channels()),
        'prepared', (SELECT count(*) FROM pg_prepared_statements),
        'cursors', (SELECT count(*) FROM pg_cursors WHERE name <> ''),
        'tables', (SELECT count(*) FROM pg_class WHERE relpersistence = 't'))
"""


def state_of(url: str) -> dict[str, Any]:
    """The state of the one connection, as another client of the pooler sees it."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
        row = other.execute(STATE, [list(TRACKED)]).fetchone()
        assert row is not None
        return dict(row[0])


def test_no_part_of_faultline_leaves_state_on_the_connection(
    shared_url: str, database_url: str, conn: Connection
) -> None:
    conn.execute("CREATE TABLE effects (job_id uuid)")
    before = state_of(shared_url)
    app = Faultline(shared_url)

    @app.task(max_attempts=1)
    async def work(job: Job, how: str) -> None:
        async with job.fenced():
            pass
        if how == "fail":
            raise ValueError(how)
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES (%s)", [job.id])

    @app.task()
    async def batched(job: Job) -> None: ...

    jobs = [work.enqueue(how=how).job_id for how in ("commit", "fail", "commit")]
    jobs += [batched.enqueue().job_id for _ in range(3)]
    with working(app, companions=[Reconciler(shared_url).run], concurrency=4):
        for job_id in jobs:
            ended(app, job_id)
    app.retry(jobs[1])
    app.cancel(jobs[1])
    app.close()
    key = {"Authorization": f"Bearer {make_key(database_url)}"}
    with TestClient(create_api(shared_url), base_url="http://localhost", headers=key) as client:
        assert client.post("/jobs", json={"task": "t", "payload": {}}).status_code == 201
    inspector = make_app(InspectorSettings(database_url=shared_url))
    with TestClient(inspector, base_url="http://localhost") as client:
        assert client.get("/api/overview").status_code == 200
    for words in (["verify"], ["doctor"], ["queues"], ["purge"], ["migrate"]):
        assert invoke(shared_url, *words).error is None
    after = state_of(shared_url)
    assert after == before
    assert after["backend"] == before["backend"], (
        "there was more than one connection to leave it on"
    )


def test_a_fence_does_not_reach_the_next_clients_transaction(
    shared_url: str, conn: Connection
) -> None:
    """Held jobs and internal settings are local to the transaction."""
    conn.execute("SELECT faultline.enqueue('t', '{}')")
    with connect(shared_url) as first, connect(shared_url) as second:
        claim_it = protocol.claim("w", ["default"], batch_size=1, lease_seconds=60)
        [claim] = run(first, claim_it)
        with first.transaction():
            first.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            run(first, protocol.assert_fence(claim))
        second.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(FenceNotHeld):
            run(second, protocol.commit(claim))
        second.execute("ROLLBACK")
        run(second, protocol.commit(claim))
        shown = "SELECT current_setting('idle_in_transaction_session_timeout')"
        assert run(second, Statement(shown, (), lambda rows: rows[0][0])) == "0"


def test_a_worker_that_gets_no_connection_fences_itself_and_works_again(
    shared_url: str, conn: Connection, events: EventTap
) -> None:
    app = Faultline(shared_url)

    @app.task(max_attempts=5)
    async def slow(job: Job) -> None:
        if job.token == 1:
            await asyncio.Event().wait()

    job_id = slow.enqueue().job_id
    with working(app, lease_seconds=0.6, companions=[Reconciler(shared_url).run]):
        wait_until(lambda: events.of("execution_started"), "the start")
        with psycopg.connect(shared_url) as holder:  # its first statement opens a transaction
            holder.execute("SELECT 1")
            wait_until(lambda: events.of("lease_lost"), "self-fencing")
            wait_until(lambda: was_refused(events), "a refused connection")
        assert ended(app, job_id).state is JobState.SUCCEEDED
    app.close()
    assert conn.execute("SELECT count(*) FROM faultline.ledger").fetchone() == (1,)


def was_refused(events: EventTap) -> bool:
    outages = events.of("database_unavailable")
    return any("query_wait_timeout" in each["error"] for each in outages)
