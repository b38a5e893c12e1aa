"""Jobs that are enqueued in transactions of SQLAlchemy."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from faultline import Faultline, InvalidInput, Job
from faultline.testing import run_until_idle
from tests.adapters.alchemy import pay
from tests.adapters.effects import (
    jobs,
    payments,
)


@pytest.fixture
def charge(app: Faultline) -> Any:
    @app.task(name="charge")
    def charge(job: Job, invoice: int) -> None:
        """Nothing: its existence counts."""

    return charge


def test_a_job_exists_if_the_sessions_transaction_commits(
    charge: Any, sessions: sessionmaker[Session], own_url: str
) -> None:
    with sessions.begin() as session:
        pay(session)
        charge.options(conn=session).enqueue(invoice=42)
        assert jobs(own_url) == 0
    assert (jobs(own_url), payments(own_url)) == (1, 1)


def test_a_rolled_back_session_leaves_no_job(
    charge: Any, sessions: sessionmaker[Session], own_url: str
) -> None:
    with sessions() as session:
        charge.options(conn=session).enqueue(invoice=42)
        session.rollback()
    assert jobs(own_url) == 0


def test_a_savepoint_that_is_rolled_back_takes_its_job_along(
    charge: Any, sessions: sessionmaker[Session], own_url: str
) -> None:
    with sessions.begin() as session:
        charge.options(conn=session).enqueue(invoice=1)
        nested = session.begin_nested()
        charge.options(conn=session).enqueue(invoice=2)
        nested.rollback()
    assert jobs(own_url) == 1


def test_many_jobs_of_several_kinds_go_in_one_call(
    app: Faultline, charge: Any, engine: Engine, own_url: str
) -> None:
    with engine.begin() as conn:
        specs = [charge.job(invoice=1), charge.options(priority=0, delay=60).job(invoice=2)]
        assert len(app.enqueue_many(specs, conn=conn)) == 2
    assert jobs(own_url) == 2


def test_a_scoped_session_is_a_session(charge: Any, engine: Engine, own_url: str) -> None:
    session = scoped_session(sessionmaker(engine))
    charge.options(conn=session).enqueue(invoice=42)
    session.commit()
    session.remove()
    assert jobs(own_url) == 1


def test_an_engine_is_refused_as_a_connection(charge: Any, engine: Engine) -> None:
    with pytest.raises(InvalidInput, match="has no transaction"):
        charge.options(conn=engine).enqueue(invoice=42)


def test_a_two_phase_session_is_refused(charge: Any, engine: Engine) -> None:
    with (
        Session(engine, twophase=True) as session,
        pytest.raises(InvalidInput, match="two-phase"),
    ):
        charge.options(conn=session).enqueue(invoice=42)


def test_a_job_does_not_commit_in_a_two_phase_session(
    app: Faultline, engine: Engine, own_url: str
) -> None:
    two_phase = sessionmaker(engine, twophase=True)

    @app.task(name="in_session", max_attempts=1)
    def in_session(job: Job) -> None:
        with job.session(two_phase) as session:
            pay(session)

    @app.task(name="in_own", max_attempts=1)
    def in_own(job: Job) -> None:
        with two_phase.begin() as session:
            pay(session)
            job.commit(session)

    in_session.enqueue()
    in_own.enqueue()
    for done in run_until_idle(app, raise_errors=False):
        assert done.outcome == "failed"
        assert "two-phase" in str(done.exception)
    assert payments(own_url) == 0


def test_a_two_phase_connection_is_refused(charge: Any, engine: Engine) -> None:
    with engine.connect() as conn:
        transaction = conn.begin_twophase()
        with pytest.raises(InvalidInput, match="two-phase"):
            charge.options(conn=conn).enqueue(invoice=42)
        transaction.rollback()


def test_a_conflict_of_keys_arrives_as_faultlines_error(
    charge: Any, sessions: sessionmaker[Session]
) -> None:
    from faultline import IdempotencyConflict

    with sessions.begin() as session:
        charge.options(conn=session, idempotency_key="k").enqueue(invoice=1)
    with sessions() as session, pytest.raises(IdempotencyConflict):
        charge.options(conn=session, idempotency_key="k").enqueue(invoice=2)
