"""batch.transaction(conn): on connections of asyncpg and sessions of SQLAlchemy."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faultline import Batch, Faultline
from faultline.testing import run_until_idle
from tests.adapters.alchemy import Payment, async_engine_for, engine_for
from tests.adapters.effects import take_over

PAY = "INSERT INTO payments (invoice) VALUES ($1)"
KINDS = ["asyncpg", "asyncpg pool", "session", "async session"]


def paid(url: str) -> list[int]:
    with psycopg.connect(url) as conn:
        return [n for (n,) in conn.execute("SELECT invoice FROM payments ORDER BY invoice")]


def define(app: Faultline, kind: str, url: str, runs: list[int], *, is_stale: bool) -> None:
    def begin(batch: Batch[dict[str, Any]]) -> None:
        runs.append(len(batch))
        if is_stale and len(runs) == 1:
            take_over(url, batch.jobs[1].id)

    @asynccontextmanager
    async def opened() -> Any:
        if kind == "asyncpg":
            conn = await asyncpg.connect(url)
            try:
                yield conn
            finally:
                await conn.close()
        else:
            async with asyncpg.create_pool(url, min_size=0, max_size=2) as pool:
                yield pool

    async def by_asyncpg(batch: Batch[dict[str, Any]]) -> None:
        begin(batch)
        async with opened() as own, batch.transaction(own) as tx:
            for job in batch:
                await tx.execute(PAY, job.args["invoice"])

    def by_session(batch: Batch[dict[str, Any]]) -> None:
        begin(batch)
        engine = engine_for(url)
        with Session(engine) as session, batch.transaction(session):
            session.add_all([Payment(invoice=job.args["invoice"]) for job in batch])
        engine.dispose()

    async def by_async_session(batch: Batch[dict[str, Any]]) -> None:
        begin(batch)
        engine = async_engine_for(url, "asyncpg")
        async with AsyncSession(engine) as session, batch.transaction(session):
            session.add_all([Payment(invoice=job.args["invoice"]) for job in batch])
        await engine.dispose()

    handlers: dict[str, Any] = {"session": by_session, "async session": by_async_session}
    app.batch_task(name="pay", max_size=3, max_wait=30)(  # waits for all three
        handlers.get(kind, by_asyncpg)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_writes_and_all_jobs_commit_together(app: Faultline, own_url: str, kind: str) -> None:
    runs: list[int] = []
    define(app, kind, own_url, runs, is_stale=False)
    app.find_task("pay").enqueue_many([{"invoice": number} for number in range(3)])
    assert len(run_until_idle(app)) == 3
    assert (runs, paid(own_url)) == ([3], [0, 1, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_one_stale_job_refuses_the_writes_of_all(app: Faultline, own_url: str, kind: str) -> None:
    runs: list[int] = []
    define(app, kind, own_url, runs, is_stale=True)
    app.find_task("pay").enqueue_many([{"invoice": number} for number in range(3)])
    run_until_idle(app, raise_errors=False)
    assert (runs, paid(own_url)) == ([3, 2], [0, 2])
