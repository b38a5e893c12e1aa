"""Jobs that commit in transactions of SQLAlchemy that their handlers own."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from faultline import Faultline, Job, NotCommitted, StaleLease
from faultline.testing import run_one, run_until_idle
from tests.adapters.alchemy import Payment, pay
from tests.adapters.effects import (
    payments,
    take_over,
)


def test_job_commit_completes_the_job_in_the_users_session(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge")
    def charge(job: Job) -> None:
        with sessions.begin() as session:
            pay(session)
            job.commit(session, result="paid")

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, done.result, payments(own_url)) == ("succeeded", "paid", 1)


def test_a_stale_commit_is_refused_even_if_the_handler_swallows_it(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    raised: list[type[BaseException]] = []

    @app.task(name="charge")
    def charge(job: Job) -> None:
        with sessions() as session:
            pay(session)
            take_over(own_url, job.id)
            for end in (lambda: job.commit(session), session.commit):
                try:
                    end()
                except Exception as error:
                    raised.append(type(error))

    charge.enqueue()
    run_one(app, raise_errors=False)
    assert raised[0] is StaleLease
    assert len(raised) == 2
    assert payments(own_url) == 0


def test_a_refusal_at_the_users_commit_arrives_as_faultlines_error(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    raised: list[BaseException] = []

    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with sessions() as session:
            job.expect_commit(session)
            pay(session)
            try:
                session.commit()  # without job.commit(session)
            except Exception as error:
                raised.append(error)
                raise

    charge.enqueue()
    run_until_idle(app, raise_errors=False)
    assert [type(error) for error in raised] == [NotCommitted]
    assert payments(own_url) == 0


def test_an_expected_commit_may_be_made_in_a_nested_transaction(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge")
    def charge(job: Job) -> None:
        with sessions.begin() as session:
            job.expect_commit(session)
            with session.begin_nested():
                pay(session)
                job.commit(session)

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, payments(own_url)) == ("succeeded", 1)


def test_a_connection_in_autocommit_mode_is_refused(
    app: Faultline, engine: Engine, own_url: str
) -> None:
    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.execute(sa.text("INSERT INTO payments (invoice) VALUES (1)"))
            job.commit(conn)

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert "in autocommit mode" in str(done.error)
    assert done.outcome == "failed"


def test_an_engine_in_autocommit_mode_has_no_effect_without_the_fence(
    app: Faultline, engine: Engine, own_url: str
) -> None:
    autocommit = sessionmaker(engine.execution_options(isolation_level="AUTOCOMMIT"))

    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with job.session(autocommit) as session:
            pay(session)

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert isinstance(done.exception, NotCommitted)
    assert (done.outcome, payments(own_url)) == ("failed", 0)


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_a_transaction_on_the_users_connection_completes_the_job(
    app: Faultline, engine: Engine, own_url: str, kind: str
) -> None:
    @app.task(name="charge")
    def charge(job: Job) -> None:
        with (
            Session(engine) if kind == "session" else engine.connect() as given,
            job.transaction(given) as tx,
        ):
            tx.execute(sa.insert(Payment).values(invoice=42))

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, payments(own_url)) == ("succeeded", 1)


def test_a_step_commits_before_the_job_does(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    seen: list[int] = []

    @app.task(name="charge")
    def charge(job: Job) -> None:
        with sessions() as session:
            with job.fenced(session) as step:
                pay(step)
            seen.append(payments(own_url))

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, seen) == ("succeeded", [1])


def test_a_job_transaction_in_a_begun_transaction_is_refused(
    app: Faultline, sessions: sessionmaker[Session]
) -> None:
    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with sessions.begin() as session, job.transaction(session):
            """Not reached."""

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert "it would be a savepoint" in str(done.error)


@pytest.mark.parametrize("how", ["session", "commit"])
def test_a_flush_that_fails_is_the_handlers_error(
    app: Faultline, sessions: sessionmaker[Session], own_url: str, how: str
) -> None:
    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        if how == "session":
            with job.session() as session:
                session.add(Payment(invoice=None))
        with sessions.begin() as session:
            session.add(Payment(invoice=None))
            job.commit(session)

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert done.outcome == "failed"
    assert isinstance(done.exception, IntegrityError)
