"""The same for AsyncSession, with both of its drivers."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from faultline import Faultline, InvalidInput, Job, NotCommitted, StaleLease
from faultline.adapters.sqlalchemy import use_sessions
from faultline.testing import run_one, run_until_idle, zombies
from faultline.testing.zombies.report import ZombieEffect
from tests.adapters.alchemy import ASYNC_DRIVERS, Payment, async_engine_for
from tests.adapters.effects import (
    assert_superseded,
    jobs,
    paid_once,
    payments,
    take_over,
)

Sessions = async_sessionmaker[AsyncSession]


@pytest.fixture(params=ASYNC_DRIVERS)
def sessions(app: Faultline, own_url: str, request: pytest.FixtureRequest) -> Sessions:
    maker = async_sessionmaker(async_engine_for(own_url, request.param))
    use_sessions(app, maker)
    return maker


@pytest.mark.anyio
async def test_a_job_exists_if_the_sessions_transaction_commits(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    @app.task(name="charge")
    async def charge(job: Job, invoice: int) -> None:
        """Nothing."""

    async with sessions() as session:
        session.add(Payment(invoice=42))
        options = charge.options(conn=session, idempotency_key="42", delay=30)
        first = await options.enqueue_async(invoice=42)
        await session.rollback()
        assert jobs(own_url) == 0
        session.add(Payment(invoice=42))
        again = await charge.options(conn=session, idempotency_key="42").enqueue_async(invoice=42)
        await app.enqueue_many_async([charge.job(invoice=1), charge.job(invoice=2)], conn=session)
        await session.commit()
    assert first.job_id != again.job_id
    assert (jobs(own_url), payments(own_url)) == (3, 1)


@pytest.mark.anyio
async def test_two_phase_transactions_are_refused(app: Faultline, sessions: Sessions) -> None:
    @app.task(name="charge")
    async def charge(job: Job) -> None:
        """Nothing."""

    async with sessions(twophase=True) as session:
        with pytest.raises(InvalidInput, match="two-phase"):
            await charge.options(conn=session).enqueue_async()


@pytest.mark.anyio
async def test_a_connection_is_accepted_too(
    app: Faultline, own_url: str, sessions: Sessions
) -> None:
    @app.task(name="charge")
    async def charge(job: Job) -> None:
        """Nothing."""

    async with sessions.kw["bind"].begin() as conn:
        await charge.options(conn=conn).enqueue_async()
    assert jobs(own_url) == 1


def test_a_plain_enqueue_refuses_an_async_session(app: Faultline, sessions: Sessions) -> None:
    @app.task(name="charge")
    async def charge(job: Job) -> None:
        """Nothing."""

    with pytest.raises(InvalidInput, match="use the _async method"):
        charge.options(conn=sessions()).enqueue()


def test_the_block_commits_the_job_with_the_sessions_writes(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with job.session() as session:
            session.add(Payment(invoice=42))
            async with session.begin_nested():
                session.add(Payment(invoice=1))
            job.result = "paid"

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, done.result, payments(own_url)) == ("succeeded", "paid", 1)


def test_the_sessions_own_commit_is_the_jobs_commit(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    seen: list[Any] = []

    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with job.session() as session:
            payment = Payment(invoice=42)
            session.add(payment)
            await session.commit()
            await session.refresh(payment)
            seen.append(((await app.get_async(job.id)).state, payment.id))

    charge.enqueue()
    run_until_idle(app)
    assert seen == [("succeeded", 1)]


def test_a_stale_session_raises_stale_lease_and_leaves_no_effect(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    raised: list[BaseException] = []

    @app.task(name="charge")
    async def charge(job: Job) -> None:
        take_over(own_url, job.id)
        try:
            async with job.session() as session:
                session.add(Payment(invoice=42))
        except Exception as error:
            raised.append(error)
            raise

    charge.enqueue()
    run_one(app, raise_errors=False)
    assert_superseded(raised)
    assert payments(own_url) == 0


def test_a_stale_commit_is_refused_even_if_the_handler_swallows_it(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    raised: list[type[BaseException]] = []

    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with sessions() as session:
            session.add(Payment(invoice=42))
            take_over(own_url, job.id)
            for end in (lambda: job.commit(session), session.commit):
                try:
                    await end()
                except Exception as error:
                    raised.append(type(error))

    charge.enqueue()
    run_one(app, raise_errors=False)
    assert raised[0] is StaleLease
    assert len(raised) == 2
    assert payments(own_url) == 0


def test_a_commit_in_the_users_session_completes_the_job(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with sessions.begin() as session:
            session.add(Payment(invoice=42))
            await job.commit(session, result="paid")

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, done.result, payments(own_url)) == ("succeeded", "paid", 1)


def test_a_refusal_at_the_users_commit_arrives_as_faultlines_error(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    raised: list[type[BaseException]] = []

    @app.task(name="charge", max_attempts=1)
    async def charge(job: Job) -> None:
        async with sessions() as session:
            await job.expect_commit(session)
            session.add(Payment(invoice=42))
            try:
                await session.commit()
            except Exception as error:
                raised.append(type(error))
                raise

    charge.enqueue()
    run_until_idle(app, raise_errors=False)
    assert raised == [NotCommitted]
    assert payments(own_url) == 0


def test_a_connection_in_autocommit_mode_is_refused(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    engine = sessions.kw["bind"].execution_options(isolation_level="AUTOCOMMIT")

    @app.task(name="charge", max_attempts=1)
    async def charge(job: Job) -> None:
        async with engine.connect() as conn:
            await conn.execute(sa.insert(Payment).values(invoice=1))
            await job.commit(conn)

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert "in autocommit mode" in str(done.error)


def test_a_transaction_or_step_on_the_users_session(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    seen: list[int] = []

    @app.task(name="charge")
    async def charge(job: Job) -> None:
        async with sessions() as session:
            async with job.fenced(session) as step:
                step.add(Payment(invoice=42))
            seen.append(payments(own_url))
            async with job.transaction(session) as tx:
                tx.add(Payment(invoice=1))

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, seen, payments(own_url)) == ("succeeded", [1], 1)


def test_a_serialization_conflict_runs_the_handler_again_in_its_attempt(
    app: Faultline, sessions: Sessions, own_url: str
) -> None:
    engine = sessions.kw["bind"].execution_options(isolation_level="SERIALIZABLE")
    runs: list[int] = []

    @app.task(name="charge", max_attempts=1)
    async def charge(job: Job) -> None:
        async with job.session(async_sessionmaker(engine)) as session:
            runs.append(len((await session.scalars(sa.select(Payment))).all()))
            if len(runs) == 1:
                async with AsyncSession(engine) as rival:
                    await rival.scalars(sa.select(Payment))
                    rival.add(Payment(invoice=1))
                    await rival.commit()
            session.add(Payment(invoice=42))

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, runs, payments(own_url)) == ("succeeded", [0, 1], 1)


@pytest.mark.parametrize("how", ["session", "commit"])
def test_a_flush_that_fails_is_the_handlers_error(
    app: Faultline, sessions: Sessions, own_url: str, how: str
) -> None:
    @app.task(name="charge", max_attempts=1)
    async def charge(job: Job) -> None:
        if how == "session":
            async with job.session() as session:
                session.add(Payment(invoice=None))
        async with sessions.begin() as session:
            session.add(Payment(invoice=None))
            await job.commit(session)

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert done.outcome == "failed"
    assert isinstance(done.exception, IntegrityError)


# ── every fault at every point ───────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_session_under_the_fence_takes_effect_once_whatever_happens(
    app: Faultline, sessions: Sessions
) -> None:
    @app.task(name="charge")
    async def charge(job: Job, invoice: int) -> None:
        async with job.session() as session:
            session.add(Payment(invoice=invoice))

    report = zombies(app, charge, {"invoice": 42}, invariant=paid_once)
    assert {"faultline.open_transaction()", "COMMIT"} <= {point.what for point in report.points}
    assert report.refusals >= 1


@pytest.mark.slow
def test_a_commit_in_the_users_session_takes_effect_once_whatever_happens(
    app: Faultline, sessions: Sessions
) -> None:
    @app.task(name="charge")
    async def charge(job: Job, invoice: int) -> None:
        async with sessions.begin() as session:
            session.add(Payment(invoice=invoice))
            await job.commit(session)

    zombies(app, charge, {"invoice": 42}, invariant=paid_once)


@pytest.mark.slow
def test_the_naive_session_pays_twice(app: Faultline, sessions: Sessions) -> None:
    @app.task(name="charge")
    async def charge(job: Job, invoice: int) -> None:
        async with sessions.begin() as session:
            session.add(Payment(invoice=invoice))

    with pytest.raises(ZombieEffect):
        zombies(app, charge, {"invoice": 42}, invariant=paid_once)
