"""The reconciler ends a frozen session with the rights that it has, or says who may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from faultline import Faultline, protocol
from faultline.database import run
from faultline.link import Link
from faultline.migrate import migrate
from faultline.reconciler import holders
from faultline.reconciler.holders import Holders

from .running import Connection, EventTap, until
from .test_settlement import claimed

AS_A_WORKER = "options=-c%20role%3Dfaultline_worker"


def look_until(url: str, has_been_said: Callable[[], bool]) -> None:
    async def look() -> None:
        link = Link(url, purpose="reconciler")
        try:
            while not has_been_said():
                await Holders(link).look(60.0)
                await asyncio.sleep(0.05)
        finally:
            await link.close()

    asyncio.run(asyncio.wait_for(look(), 30))


@pytest.fixture(params=["the same account", "another account"])
def account(request: pytest.FixtureRequest, database_url: str) -> str:
    """The schema's owner may neither see nor end the session; the reconciler's account may, or not."""
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
    monkeypatch.setattr(holders, "HOLDER_GRACE_SECONDS", 1.0)
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

        [said] = events.of(name)
        assert (said["pid"], said["job_id"]) == (pid, lease.claim.id)
        if is_permitted:
            until(lambda: run(conn, protocol.reconcile(max_jobs=1)), "the takeover")
            with pytest.raises(psycopg.OperationalError):
                frozen.execute("SELECT 1")
        else:
            assert f"pg_terminate_backend({pid})" in said["reason"]
            frozen.execute("SELECT 1")


def test_a_prepared_transaction_does_not_keep_the_slot(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    from faultline import Job

    from .running import working

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
            until(lambda: events.of("degraded"), "the report")
            later = after.enqueue().job_id
            until(lambda: app.get(later).state.value == "succeeded", "the next job")
        said = [event for event in events.of("degraded") if event.get("job_id") == str(job_id)]
        assert f"ROLLBACK PREPARED '{gid}'" in said[0]["reason"]
    finally:
        conn.execute(f"ROLLBACK PREPARED '{gid}'")
    assert app.get(job_id).state.value == "running"  # its lease tells
