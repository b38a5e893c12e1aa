"""Jobs that write through sessions of SQLAlchemy under the fence."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from faultline import Faultline, InvalidInput, Job, NotCommitted
from faultline.adapters.sqlalchemy import use_sessions, user_connection
from faultline.statements.statement import Statement, no_result
from faultline.testing import ALL_FAULTS, Fault, run_one, run_until_idle, zombies
from faultline.testing.zombies.report import ZombieEffect
from faultline.user_connections import SyncUserConnection
from tests.adapters import child_jobs
from tests.adapters.alchemy import Payment, engine_for, pay
from tests.adapters.effects import (
    assert_superseded,
    paid_once,
    payments,
    take_over,
)


def test_the_block_commits_the_job_with_the_sessions_writes(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)
            job.result = {"paid": 42}

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, done.result, payments(own_url)) == ("succeeded", {"paid": 42}, 1)


def test_the_sessions_own_commit_is_the_jobs_commit(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    seen: list[Any] = []

    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session() as session:
            payment = Payment(invoice=42)
            session.add(payment)
            session.commit()
            seen.append((app.get(job.id).state, payment.id))  # expired, so it is read again

    charge.enqueue()
    run_until_idle(app)
    assert seen == [("succeeded", 1)]


def test_after_the_sessions_commit_nothing_can_be_written(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    errors: list[Exception] = []

    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)
            session.commit()
            pay(session)
            try:
                session.flush()
            except DBAPIError as error:
                errors.append(error)
                session.rollback()

    charge.enqueue()
    run_until_idle(app)
    assert "read-only" in str(errors[0])
    assert payments(own_url) == 1


def test_objects_added_after_the_commit_are_reported(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)
            session.commit()
            pay(session)

    charge.enqueue()
    [done] = run_until_idle(app)
    assert done.outcome == "succeeded"
    assert "changed after session.commit()" in str(done.exception)
    assert payments(own_url) == 1


def test_an_error_in_the_block_leaves_no_effect(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)
            session.flush()
            raise ValueError("no such card")

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert (done.outcome, payments(own_url)) == ("failed", 0)


def test_a_stale_session_raises_stale_lease_and_leaves_no_effect(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    raised: list[BaseException] = []

    @app.task(name="charge")
    def charge(job: Job) -> None:
        try:
            take_over(own_url, job.id)
            with job.session() as session:
                pay(session)
        except Exception as error:
            raised.append(error)
            raise

    charge.enqueue()
    run_one(app, raise_errors=False)
    assert_superseded(raised)
    assert payments(own_url) == 0


def test_rolling_back_the_session_does_not_complete_the_job(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)
            session.rollback()
            pay(session)

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert (done.outcome, payments(own_url)) == ("failed", 0)
    assert isinstance(done.exception, NotCommitted)


def test_a_commit_typed_as_sql_is_refused_and_leaves_no_effect(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    raised: list[BaseException] = []

    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)
            session.flush()
            try:
                session.execute(sa.text("COMMIT"))
            except Exception as error:
                raised.append(error)
                raise

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert [type(error) for error in raised] == [NotCommitted]
    assert (done.outcome, payments(own_url)) == ("failed", 0)


def test_savepoints_in_the_block_work(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session() as session:
            with session.begin_nested():
                pay(session)
            nested = session.begin_nested()
            pay(session)
            nested.rollback()

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, payments(own_url)) == ("succeeded", 1)


def test_objects_that_do_not_expire_can_be_used_after_the_block(
    app: Faultline, engine: Engine, own_url: str
) -> None:
    ids: list[int] = []

    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session(sessionmaker(engine, expire_on_commit=False)) as session:
            payment = Payment(invoice=42)
            session.add(payment)
        ids.append(payment.id)

    charge.enqueue()
    run_until_idle(app)
    assert ids == [1]


def test_jobs_enqueued_in_the_session_belong_to_it(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="mail")
    def mail(job: Job) -> None:
        """Nothing."""

    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)
            mail.options(conn=session).enqueue()

    charge.enqueue()
    assert [done.task for done in run_until_idle(app)] == ["charge", "mail"]


def test_a_serialization_conflict_runs_the_handler_again_in_its_attempt(
    app: Faultline, own_url: str
) -> None:
    serializable = engine_for(own_url, isolation_level="SERIALIZABLE")
    other = engine_for(own_url, isolation_level="SERIALIZABLE")
    runs: list[int] = []

    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with job.session(sessionmaker(serializable)) as session:
            runs.append(len(session.query(Payment).all()))
            if len(runs) == 1:
                with Session(other) as rival:
                    rival.query(Payment).all()
                    pay(rival, 1)
                    rival.commit()
            pay(session)

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, runs, payments(own_url)) == ("succeeded", [0, 1], 1)
    serializable.dispose()
    other.dispose()


def test_job_session_says_how_to_name_the_engine(app: Faultline) -> None:
    @app.task(name="charge", max_attempts=1)
    def charge(job: Job) -> None:
        with job.session():
            """Not reached."""

    charge.enqueue()
    [done] = run_until_idle(app, raise_errors=False)
    assert "use_sessions(app, sessionmaker(engine))" in str(done.error)


def test_a_maker_of_something_else_is_refused(app: Faultline, engine: Engine) -> None:
    with pytest.raises(InvalidInput, match="makes no sessions"):
        use_sessions(app, engine.connect)


def test_a_lost_connection_is_replaced_for_the_next_job(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge", max_attempts=2)
    def charge(job: Job) -> None:
        with job.session() as session:
            if job.attempt == 1:
                with pytest.raises(SQLAlchemyError):
                    session.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))
                raise ValueError("the server ended the session")
            pay(session)

    from faultline.testing import advance

    charge.enqueue()
    [first] = run_until_idle(app, raise_errors=False)
    advance(app, 3600)
    [second] = run_until_idle(app)
    assert (first.outcome, second.outcome, payments(own_url)) == ("retrying", "succeeded", 1)


def test_the_worker_may_sever_a_connection_that_is_closed(engine: Engine) -> None:
    with engine.connect() as conn:
        wrapped = user_connection(conn)
        assert isinstance(wrapped, SyncUserConnection)
        wrapped.run(Statement("SELECT 1", (), no_result))
        conn.connection.driver_connection.close()  # type: ignore[union-attr]
        with ThreadPoolExecutor(1) as worker:
            worker.submit(wrapped.sever).result()
        conn.invalidate()


def test_threads_share_the_engine(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)

    for _ in range(40):
        charge.enqueue()
    app.run_worker(concurrency=4, max_jobs=40)
    assert payments(own_url) == 40


def test_a_forked_child_does_not_use_its_parents_connections(
    app: Faultline, sessions: sessionmaker[Session], own_url: str
) -> None:
    @app.task(name="charge")
    def charge(job: Job) -> None:
        with job.session() as session:
            pay(session)
            session.flush()
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                try:
                    with sessions() as own:  # a connection of its own
                        assert own.execute(sa.text("SELECT count(*) FROM payments")).scalar() == 0
                    os._exit(7)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    charge.enqueue()
    [done] = run_until_idle(app)
    assert (done.outcome, payments(own_url)) == ("succeeded", 1)


def test_a_child_process_writes_through_an_engine_of_its_own(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", own_url)
    enqueued = child_jobs.charge.enqueue()
    child_jobs.app.run_worker(max_jobs=1)
    pid = enqueued.result(timeout=30)
    child_jobs.app.close()
    assert pid != os.getpid()
    assert payments(own_url) == 1


def test_a_session_under_the_fence_takes_effect_once_whatever_happens(
    app: Faultline, sessions: sessionmaker[Session]
) -> None:
    @app.task(name="charge")
    def charge(job: Job, invoice: int) -> None:
        with job.session() as session:
            pay(session, invoice)

    report = zombies(app, charge, {"invoice": 42}, invariant=paid_once)
    sent = [point.what for point in report.points]
    assert {"faultline.open_transaction()", "faultline.close_transaction()", "COMMIT"} <= set(sent)
    assert any(what.startswith("INSERT INTO payments") for what in sent)
    assert all(report.injected[fault] == len(sent) for fault in ALL_FAULTS[:-1])
    assert report.injected[Fault.LOST_ANSWER] >= 1
    assert report.takeovers > len(sent)
    assert report.refusals >= 1


@pytest.mark.slow
def test_a_commit_in_the_users_session_takes_effect_once_whatever_happens(
    app: Faultline, sessions: sessionmaker[Session]
) -> None:
    @app.task(name="charge")
    def charge(job: Job, invoice: int) -> None:
        with sessions.begin() as session:
            pay(session, invoice)
            job.commit(session)

    zombies(app, charge, {"invoice": 42}, invariant=paid_once)


def test_the_naive_session_pays_twice(app: Faultline, sessions: sessionmaker[Session]) -> None:
    @app.task(name="charge")
    def charge(job: Job, invoice: int) -> None:
        with sessions.begin() as session:  # and then the worker completes the job
            pay(session, invoice)

    with pytest.raises(ZombieEffect):
        zombies(app, charge, {"invoice": 42}, invariant=paid_once)
