"""Public methods raise Faultline's errors, with the driver's as the cause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import conninfo, errors, sql

from faultline import DatabaseUnavailable, Faultline, FaultlineError, Job, JobState
from faultline.errors import DatabaseRefused
from faultline.postgres.outage import outage_of
from faultline.statements.statement import Statement
from tests.running import Connection, work_off


def statement(query: str) -> Statement[None]:
    return Statement(query, (), lambda rows: None)  # type: ignore[arg-type]


def raising(sqlstate: str) -> Statement[None]:
    return statement(f"DO $$BEGIN RAISE EXCEPTION 'so' USING ERRCODE = '{sqlstate}'; END$$")


END_OURSELVES = statement("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(60)")
CANCEL_OURSELVES = statement("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)")
CASES: dict[str, tuple[Statement[None], type[FaultlineError], type[psycopg.Error], str]] = {
    "session ended": (END_OURSELVES, DatabaseUnavailable, errors.AdminShutdown, "may have been"),
    "cancelled": (CANCEL_OURSELVES, DatabaseRefused, errors.QueryCanceled, "statement_timeout"),
    "deadlock": (raising("40P01"), DatabaseRefused, errors.DeadlockDetected, "server's log"),
    "read only": (raising("25006"), DatabaseRefused, errors.ReadOnlySqlTransaction, "primary"),
    "full": (raising("53300"), DatabaseRefused, errors.TooManyConnections, "doctor"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_driver_error_is_the_cause_of_a_faultline_error(app: Faultline, case: str) -> None:
    sent, ours, drivers, hint = CASES[case]
    with pytest.raises(ours, match=hint) as plain:
        app.execute(sent)
    assert isinstance(plain.value.__cause__, drivers)

    async def main() -> None:
        with pytest.raises(ours, match=hint) as on_loop:
            await app.execute_async(sent)
        assert isinstance(on_loop.value.__cause__, drivers)
        await app.aclose()

    asyncio.run(main())


def test_on_a_users_connection_the_drivers_errors_are_unchanged(
    app: Faultline, conn: Connection
) -> None:
    with pytest.raises(errors.DeadlockDetected):
        app.execute(raising("40P01"), conn)


@pytest.fixture
def stranger(database_url: str, conn: Connection) -> Iterator[str]:
    """The URL of an account that may connect and nothing else."""
    name = f"stranger_{conn.info.backend_pid}"
    account = sql.Identifier(name)
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(account))
    conn.execute(sql.SQL("GRANT USAGE ON SCHEMA faultline TO {}").format(account))
    yield conninfo.make_conninfo(database_url, user=name, password="secret")
    conn.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(account))


CALLS: dict[str, tuple[Callable[[Faultline], object], str]] = {
    "enqueue": (lambda app: app.find_task("pay").enqueue(), "GRANT faultline_producer TO"),
    "queues": (lambda app: app.queues(), "GRANT faultline_inspector TO"),
    "pause": (lambda app: app.pause_queue("default"), "GRANT faultline_operator TO"),
}


def test_a_missing_right_is_named_with_the_role_that_has_it(
    stranger: str, conn: Connection
) -> None:
    conn.execute("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA faultline FROM PUBLIC")
    app = Faultline(stranger)

    @app.task(name="pay")
    def pay(job: Job) -> None:
        """Never run here."""

    for call, hint in CALLS.values():
        with pytest.raises(DatabaseRefused, match=hint) as refused:
            call(app)
        assert isinstance(refused.value.__cause__, errors.InsufficientPrivilege)
    app.close()


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_handler_that_makes_its_transaction_read_only_uses_up_an_attempt(
    app: Faultline, effects: str, colour: str
) -> None:
    """A standby raises the same error; without a charge the job would run for ever."""
    write = "INSERT INTO effects VALUES ('written')"

    @app.task(name="async", max_attempts=1)
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("SET TRANSACTION READ ONLY")
            await tx.execute(write)

    @app.task(name="plain", max_attempts=1)
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("SET TRANSACTION READ ONLY")
            tx.execute(write)

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert (record.state, record.attempts) == (JobState.FAILED, 1)


def test_an_attempt_without_database_is_released_only_during_an_outage(
    app: Faultline,
) -> None:
    runs: list[int] = []

    @app.task(name="during", max_attempts=1)
    async def during(job: Job) -> None:
        runs.append(job.attempt)
        if len(runs) == 1:
            outage = outage_of(app.database_url)
            outage.fail("another session", psycopg.OperationalError("away"))
            outage.recover("another session")
            raise DatabaseUnavailable("no connection")

    @app.task(name="without", max_attempts=1)
    async def without(job: Job) -> None:
        raise DatabaseUnavailable("no connection")

    record = work_off(app, during.enqueue().job_id)
    assert (record.state, record.attempts, runs) == (JobState.SUCCEEDED, 1, [1, 1])
    assert work_off(app, without.enqueue().job_id).state is JobState.FAILED
