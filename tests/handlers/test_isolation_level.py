"""Above READ COMMITTED: the same guarantees, and conflicts are retried."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from faultline import Faultline, FenceNotHeld, Job, JobRecord, JobState, Task
from tests.running import (
    Connection,
    EventTap,
    count,
    ended,
    value,
    wait_for_the_first_heartbeat,
    work_off,
    working,
)
from tests.waiting import wait_until

LEVELS = [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]
WRITE = "INSERT INTO effects VALUES (current_setting('transaction_isolation'))"


def level_name(level: IsolationLevel) -> str:
    return level.name.lower().replace("_", " ")


def work_off_between_heartbeats(
    app: Faultline, conn: Connection, task: Task[Any, Any]
) -> JobRecord:
    """Run the job without a heartbeat in flight, which would be a conflict too."""
    with working(app, lease_seconds=600):
        wait_for_the_first_heartbeat(conn)
        return ended(app, task.enqueue().job_id)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_transaction_has_the_isolation_that_was_asked_for(
    app: Faultline, conn: Connection, effects: str, level: IsolationLevel, colour: str
) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with job.transaction(isolation=level) as tx:
            await tx.execute(WRITE)

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with job.transaction(isolation=level) as tx:
            tx.execute(WRITE)

    record = work_off(app, app.find_task(colour).enqueue().job_id)
    assert record.state is JobState.SUCCEEDED
    assert conn.execute("SELECT note FROM effects").fetchall() == [(level_name(level),)]


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_the_isolation_of_one_job_is_not_passed_on_to_the_next(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    @app.task(name="async")
    async def on_loop(job: Job, strict: bool) -> None:
        level = IsolationLevel.SERIALIZABLE if strict else None
        async with job.transaction(isolation=level) as tx:
            await tx.execute(WRITE)

    @app.task(name="plain")
    def in_thread(job: Job, strict: bool) -> None:
        with job.transaction(isolation=IsolationLevel.SERIALIZABLE if strict else None) as tx:
            tx.execute(WRITE)

    task = app.find_task(colour)
    with working(app, concurrency=1, max_jobs=2) as worker:
        for strict in (True, False):
            task.enqueue(strict=strict)
        wait_until(lambda: not worker.is_alive)
    notes = [note for (note,) in conn.execute("SELECT note FROM effects").fetchall()]
    assert notes == ["serializable", "read committed"]


@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, *LEVELS])
def test_heartbeats_before_and_during_the_transaction_do_not_fail_its_commit(
    app: Faultline, conn: Connection, effects: str, events: EventTap, level: IsolationLevel
) -> None:
    beats = "SELECT query_start FROM pg_stat_activity WHERE application_name = %s AND datname = %s"

    def wait_for_a_beat() -> None:
        """Renewed or locked, a heartbeat has come and gone."""
        before = value(conn, beats, "faultline heartbeat", conn.info.dbname)
        wait_until(lambda: value(conn, beats, "faultline heartbeat", conn.info.dbname) != before)

    @app.task()
    def slow(job: Job) -> None:
        wait_for_the_first_heartbeat(conn)
        wait_for_a_beat()
        with job.transaction(isolation=level) as tx:
            tx.execute(WRITE)
            wait_for_a_beat()
            wait_for_a_beat()

    record = work_off(app, slow.enqueue().job_id, lease_seconds=30, heartbeat_seconds=0.1)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert events.of("lease_lost") == []
    assert count(conn, effects) == 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_conflict_with_another_transaction_runs_the_same_attempt_again(
    app: Faultline, conn: Connection, effects: str, level: IsolationLevel, colour: str
) -> None:
    """A first-updater conflict: another session always commits after our snapshot."""
    conn.execute("CREATE TABLE account (balance integer)")
    conn.execute("INSERT INTO account VALUES (0)")
    runs: list[tuple[int, int]] = []

    def interfere(job: Job) -> None:
        runs.append((job.attempt, job.token))
        if len(runs) == 1:
            conn.execute("UPDATE account SET balance = balance + 100")

    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with job.transaction(isolation=level) as tx:
            await tx.execute("SELECT * FROM account")
            interfere(job)
            await tx.execute("UPDATE account SET balance = balance + 1")

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with job.transaction(isolation=level) as tx:
            tx.execute("SELECT * FROM account")
            interfere(job)
            tx.execute("UPDATE account SET balance = balance + 1")

    record = work_off_between_heartbeats(app, conn, app.find_task(colour))
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert runs == [(1, 1), (1, 1)]
    assert value(conn, "SELECT balance FROM account") == 101
    assert count(conn, "faultline.attempts_log") == 0


def test_a_conflict_found_at_commit_runs_the_same_attempt_again(
    app: Faultline, conn: Connection, effects: str, database_url: str
) -> None:
    """SERIALIZABLE detects write skew only at COMMIT, after the ledger entry."""
    runs = 0

    @app.task()
    def skewed(job: Job) -> None:
        nonlocal runs
        runs += 1
        with psycopg.connect(database_url) as other:
            other.isolation_level = IsolationLevel.SERIALIZABLE
            with job.transaction(isolation=IsolationLevel.SERIALIZABLE) as tx:
                tx.execute("SELECT count(*) FROM effects")
                tx.execute("INSERT INTO effects VALUES ('job')")
                if runs == 1:
                    other.execute("SELECT count(*) FROM effects")
                    other.execute("INSERT INTO effects VALUES ('other')")
                    other.commit()

    record = work_off_between_heartbeats(app, conn, skewed)
    assert (record.state, record.attempts, runs) == (JobState.SUCCEEDED, 1, 2)
    notes = [note for (note,) in conn.execute("SELECT note FROM effects ORDER BY 1").fetchall()]
    assert notes == ["job", "other"]


def test_an_endless_conflict_fails_the_attempt(app: Faultline) -> None:
    runs = 0

    @app.task(max_attempts=1)
    async def unlucky(job: Job) -> None:
        nonlocal runs
        runs += 1
        raise psycopg.errors.SerializationFailure("again and again")

    record = work_off(app, unlucky.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert 1 < runs < 20


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_commit_without_the_fence_first_is_refused_with_the_remedy(
    app: Faultline,
    conn: Connection,
    effects: str,
    database_url: str,
    level: IsolationLevel,
    colour: str,
) -> None:
    refused: list[FenceNotHeld] = []

    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await own.set_isolation_level(level)
            try:
                await own.execute(WRITE)
                await job.commit(own)
            except FenceNotHeld as error:
                refused.append(error)
                await own.rollback()
            await job.assert_fence(own)
            await own.execute(WRITE)
            await job.commit(own)

    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with psycopg.connect(database_url) as own:
            own.isolation_level = level
            try:
                own.execute(WRITE)
                job.commit(own)
            except FenceNotHeld as error:
                refused.append(error)
                own.rollback()
            job.assert_fence(own)
            own.execute(WRITE)
            job.commit(own)

    record = work_off_between_heartbeats(app, conn, app.find_task(colour))
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    [error] = refused
    assert error.code == "fence_not_held"
    assert "assert_fence" in str(error)
    assert count(conn, effects) == 1
