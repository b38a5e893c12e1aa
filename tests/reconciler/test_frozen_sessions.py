"""The reconciler ends a frozen session, or reports which account has the right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from faultline import Faultline, Job
from faultline.config import WorkerSettings
from faultline.postgres.migrate import migrate
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import run
from faultline.reconciler import frozen_sessions
from faultline.reconciler.frozen_sessions import FrozenSessions
from faultline.statements import protocol
from faultline.workers import Worker
from faultline.workers.background import Wakeup
from faultline.workers.committer import Committer
from faultline.workers.leases import HeldLeases
from tests.running import Connection, EventTap, background, ended, working
from tests.waiting import LIMIT_SECONDS, wait_until, wait_until_async
from tests.workers.test_outcomes import claimed, make_outcomes

AS_A_WORKER = "options=-c%20role%3Dfaultline_worker"


def look_until(url: str, is_reported: Callable[[], bool]) -> None:
    async def look() -> None:
        link = ReconnectingSession(url, purpose="reconciler")

        async def reported() -> bool:
            await FrozenSessions(link).look(60.0)
            return is_reported()

        try:
            await wait_until_async(reported, "an end or a report of the session")
        finally:
            await link.close()

    asyncio.run(look())


@pytest.fixture(params=["the same account", "another account"])
def account(request: pytest.FixtureRequest, database_url: str) -> str:
    """The reconciler's URL: the account of the frozen session, or one without rights.

    The schema's owner may neither see nor end the session.
    """
    migrate(database_url, roles=True)
    if request.param == "the same account":
        return database_url
    return f"{database_url}{'&' if '?' in database_url else '?'}{AS_A_WORKER}"


def test_a_frozen_session_is_ended_by_the_same_account_and_named_by_another(
    app: Faultline,
    conn: Connection,
    events: EventTap,
    account: str,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frozen_sessions, "HOLDER_GRACE_SECONDS", 1.0)
    lease = claimed(app, conn)
    with psycopg.connect(database_url) as frozen:
        run(frozen, protocol.assert_fence(lease.claim))
        pid = frozen.info.backend_pid
        past = (
            "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 minute'"
        )
        conn.execute(past)
        is_permitted = account == database_url
        name = "session_ended" if is_permitted else "degraded"

        look_until(account, lambda: bool(events.of(name)))

        [event] = events.of(name)
        assert (event["pid"], event["job_id"]) == (pid, lease.claim.id)
        if is_permitted:
            wait_until(lambda: run(conn, protocol.reconcile(max_jobs=1)), "the takeover")
            with pytest.raises(psycopg.OperationalError):
                frozen.execute("SELECT 1")
        else:
            assert f"pg_terminate_backend({pid})" in event["reason"]
            frozen.execute("SELECT 1")


def test_a_prepared_transaction_does_not_keep_the_slot(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    gid = f"of {app.database_url[-20:]}"

    @app.task()
    async def prepare(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(app.database_url) as own:
            await job.commit(own)
            await own.execute(f"PREPARE TRANSACTION '{gid}'")

    @app.task()
    async def after(job: Job) -> None: ...

    job_id = prepare.enqueue().job_id
    try:
        with working(app, concurrency=1, lease_seconds=600):
            wait_until(lambda: events.of("degraded"), "the report")
            later = after.enqueue().job_id
            wait_until(lambda: app.get(later).state.value == "succeeded", "the next job")
        reports = [event for event in events.of("degraded") if event.get("job_id") == str(job_id)]
        assert f"ROLLBACK PREPARED '{gid}'" in reports[0]["reason"]
    finally:
        conn.execute(f"ROLLBACK PREPARED '{gid}'")
    assert app.get(job_id).state.value == "running"  # its lease tells


def test_a_prepared_transaction_does_not_keep_a_commit_in_a_batch_waiting(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    gid = f"batch {app.database_url[-20:]}"

    @app.task()
    async def lock_own_row(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(app.database_url) as own:
            await own.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [job.id])
            await own.execute(f"PREPARE TRANSACTION '{gid}'")

    @app.task()
    async def after(job: Job) -> None: ...

    worker = Worker(app, WorkerSettings(concurrency=1, lease_seconds=600, commit_batch=10))
    job_id = lock_own_row.enqueue().job_id
    try:
        with background(worker.run, stop=worker.stop):
            wait_until(lambda: worker._committer.pending == 1, "the locked commit")
            ended(app, after.enqueue().job_id)
            wait_until(lambda: worker._committer.pending == 0, "the end of the wait")
        reports = [event for event in events.of("degraded") if event.get("job_id") == str(job_id)]
        assert f"ROLLBACK PREPARED '{gid}'" in reports[0]["reason"]
    finally:
        conn.execute(f"ROLLBACK PREPARED '{gid}'")
    assert app.get(job_id).state.value == "running"


def test_a_commit_in_a_batch_gives_up_on_a_session_that_outlasts_its_lease(
    app: Faultline, conn: Connection, database_url: str, events: EventTap
) -> None:
    lease = claimed(app, conn)
    lease.deadline -= 2 * lease.lease_seconds + 1

    async def commit() -> None:
        link = ReconnectingSession(database_url, purpose="committer")
        committer = Committer(link, batch_size=10, wakeup=Wakeup())
        service = asyncio.create_task(committer.run())
        held_leases = HeldLeases()
        held_leases.add(lease)
        outcomes = make_outcomes(database_url, held_leases, committer)
        await outcomes.commit(lease, None)
        await asyncio.wait_for(committer.drained(), LIMIT_SECONDS)
        assert len(held_leases) == 0
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)
        await outcomes.close()
        await committer.close()

    with psycopg.connect(database_url) as holder:
        query = "SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE"
        holder.execute(query, [lease.claim.job_id])
        asyncio.run(commit())
    [event] = events.of("degraded")
    assert f"faultline why {lease.claim.id}" in event["reason"]
