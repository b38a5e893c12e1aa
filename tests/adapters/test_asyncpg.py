"""Jobs that write through asyncpg, on the user's connection or pool."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from faultline import Faultline, InvalidInput, Job, NotCommitted, StaleLease, Unique
from faultline.placeholders import numbered
from faultline.testing import run_one, run_until_idle, zombies
from faultline.testing.zombies.report import ZombieEffect
from tests.adapters.effects import (
    assert_superseded,
    jobs,
    paid_once,
    payments,
    take_over,
)

PAY = "INSERT INTO payments (invoice) VALUES ($1)"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(url)
    try:
        yield conn
    finally:
        await conn.close()


def test_placeholders_are_numbered_and_json_goes_as_text() -> None:
    sql = "SELECT f(%s, %s::uuid, %s::jsonb) WHERE a LIKE 'x%%' AND b = %s::uuid[]"
    assert numbered(sql) == (
        "SELECT f($1, $2::text::uuid, $3::text::jsonb) WHERE a LIKE 'x%' AND b = $4::uuid[]"
    )


@pytest.fixture
def charge(app: Faultline) -> Any:
    @app.task(name="charge")
    async def charge(job: Job, invoice: int) -> None:
        """Nothing: its existence counts."""

    return charge


@pytest.mark.anyio
async def test_a_job_exists_if_the_transaction_commits(charge: Any, own_url: str) -> None:
    async with connected(own_url) as conn:
        transaction = conn.transaction()
        await transaction.start()
        await charge.options(conn=conn).enqueue_async(invoice=1)
        await transaction.rollback()
        assert jobs(own_url) == 0
        async with conn.transaction():
            enqueued = await charge.options(conn=conn, expires_in=60).enqueue_async(invoice=42)
            assert enqueued.job_id is not None
    assert jobs(own_url) == 1


@pytest.mark.anyio
async def test_all_kinds_of_options_reach_the_database(
    app: Faultline, charge: Any, own_url: str
) -> None:
    unique = Unique(by=("invoice",))
    async with asyncpg.create_pool(own_url, min_size=1, max_size=2) as pool:
        await charge.options(conn=pool, unique=unique).enqueue_async(invoice=1)
        await charge.options(conn=pool, unique=unique).enqueue_async(invoice=1)
        await charge.options(conn=pool).enqueue_many_async(
            [{"invoice": 2}, {"invoice": 3}], idempotency_keys=["a", None]
        )
        async with pool.acquire() as lent, lent.transaction():
            specs = [charge.options(timeout=5, lease=9).job(invoice=4), charge.job(invoice=5)]
            await app.enqueue_many_async(specs, conn=lent)
    assert jobs(own_url) == 5


@pytest.mark.anyio
async def test_codecs_of_the_application_do_not_matter(
    app: Faultline, charge: Any, own_url: str
) -> None:
    async with connected(own_url) as conn:
        for name in ("json", "jsonb"):
            await conn.set_type_codec(
                name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )
        await conn.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")
        enqueued = await charge.options(conn=conn).enqueue_async(invoice=42)
    assert app.get(str(enqueued.job_id)).payload == {"invoice": 42}


@pytest.mark.anyio
async def test_a_cursor_is_refused_as_a_connection(charge: Any) -> None:
    with pytest.raises(InvalidInput, match="no connection that Faultline knows"):
        await charge.options(conn=object()).enqueue_async(invoice=42)


@pytest.mark.parametrize("kind", ["connection", "pool"])
def test_a_transaction_completes_the_job_with_its_writes(
    app: Faultline, own_url: str, kind: str
) -> None:
    @app.task(name="charge")
    async def charge(job: Job) -> None:
        opened = connected(own_url) if kind == "connection" else asyncpg.create_pool(own_url)
        async with opened as given, job.transaction(given) as tx:
            await tx.execute(PAY, 42)
            async with tx.transaction():
                await tx.execute(PAY, 1)

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, payments(own_url)) == ("succeeded", 1)


def test_a_step_commits_before_the_job_does(app: Faultline, own_url: str) -> None:
    seen: list[int] = []

    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with connected(own_url) as conn:
            async with job.fenced(conn) as step:
                await step.execute(PAY, 42)
            seen.append(payments(own_url))
            async with conn.transaction(), job.fenced(conn) as step:
                await step.execute(PAY, 42)

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, seen, payments(own_url)) == ("succeeded", [1], 2)


def test_a_step_on_a_pool_commits_before_the_job_does(app: Faultline, own_url: str) -> None:
    seen: list[int] = []

    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with asyncpg.create_pool(own_url, min_size=0, max_size=1) as pool:
            async with job.fenced(pool) as step:
                await step.execute(PAY, 42)
            seen.append(payments(own_url))

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, seen) == ("succeeded", [1])


def test_a_stale_transaction_raises_stale_lease_and_leaves_no_effect(
    app: Faultline, own_url: str
) -> None:
    raised: list[BaseException] = []

    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with connected(own_url) as conn:
            take_over(own_url, job.id)
            try:
                async with job.transaction(conn) as tx:
                    await tx.execute(PAY, 42)
            except Exception as error:
                raised.append(error)
                raise

    charge.enqueue()
    run_one(app, raise_errors=False)
    assert_superseded(raised)
    assert payments(own_url) == 0


def test_a_stale_commit_is_refused_even_if_the_handler_swallows_it(
    app: Faultline, own_url: str
) -> None:
    raised: list[type[BaseException]] = []

    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with connected(own_url) as conn:
            transaction = conn.transaction()
            await transaction.start()
            await conn.execute(PAY, 42)
            take_over(own_url, job.id)
            for end in (lambda: job.commit(conn), transaction.commit):
                try:
                    await end()
                except Exception as error:
                    raised.append(type(error))

    charge.enqueue()
    run_one(app, raise_errors=False)
    assert raised[0] is StaleLease
    assert len(raised) == 2
    assert payments(own_url) == 0


def test_a_commit_in_the_users_transaction_completes_the_job(app: Faultline, own_url: str) -> None:
    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with connected(own_url) as conn, conn.transaction():
            await conn.execute(PAY, 42)
            await job.commit(conn, result="paid")

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, done.result, payments(own_url)) == ("succeeded", "paid", 1)


@pytest.mark.parametrize("kind", ["connection", "pool"])
def test_a_commit_outside_of_a_transaction_is_refused(
    app: Faultline, own_url: str, kind: str
) -> None:
    @app.task(name="charge", max_attempts=1)
    async def charge(job: Job) -> None:
        opened = connected(own_url) if kind == "connection" else asyncpg.create_pool(own_url)
        async with opened as given:
            await job.commit(given)

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert "transaction" in str(done.error)
    assert done.outcome == "failed"


def test_a_commit_typed_as_sql_is_refused_and_leaves_no_effect(
    app: Faultline, own_url: str
) -> None:
    @app.task(name="charge", max_attempts=1)
    async def charge(job: Job) -> None:
        async with connected(own_url) as conn, job.transaction(conn) as tx:
            await tx.execute(PAY, 42)
            await tx.execute("COMMIT")

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert (done.outcome, payments(own_url)) == ("failed", 0)
    assert isinstance(done.exception, NotCommitted)


def test_a_rollback_typed_as_sql_does_not_complete_the_job(app: Faultline, own_url: str) -> None:
    @app.task(name="charge", max_attempts=1)
    async def charge(job: Job) -> None:
        async with connected(own_url) as conn, job.transaction(conn) as tx:
            await tx.execute("ROLLBACK")
            await tx.execute(PAY, 1)

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert done.outcome == "failed"


def test_a_job_transaction_in_a_begun_transaction_is_refused(app: Faultline, own_url: str) -> None:
    @app.task(name="charge", max_attempts=1)
    async def charge(job: Job) -> None:
        async with connected(own_url) as conn, conn.transaction(), job.transaction(conn):
            """Not reached."""

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert "it would be a savepoint" in str(done.error)


# ── every fault at every point ───────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_transaction_takes_effect_once_whatever_happens(app: Faultline, own_url: str) -> None:
    @app.task(name="charge")
    async def charge(job: Job, invoice: int) -> None:
        async with connected(own_url) as conn, job.transaction(conn) as tx:
            await tx.execute(PAY, invoice)

    report = zombies(app, charge, {"invoice": 42}, invariant=paid_once)
    assert {"faultline.open_transaction()", PAY, "COMMIT"} <= {p.what for p in report.points}
    assert report.refusals >= 1


@pytest.mark.slow
def test_a_commit_in_the_users_transaction_takes_effect_once_whatever_happens(
    app: Faultline, own_url: str
) -> None:
    @app.task(name="charge")
    async def charge(job: Job, invoice: int) -> None:
        async with connected(own_url) as conn, conn.transaction():
            await conn.execute(PAY, invoice)
            await job.commit(conn)

    zombies(app, charge, {"invoice": 42}, invariant=paid_once)


@pytest.mark.slow
def test_the_naive_transaction_pays_twice(app: Faultline, own_url: str) -> None:
    @app.task(name="charge")
    async def charge(job: Job, invoice: int) -> None:
        async with connected(own_url) as conn, conn.transaction():
            await conn.execute(PAY, invoice)

    with pytest.raises(ZombieEffect):
        zombies(app, charge, {"invoice": 42}, invariant=paid_once)
