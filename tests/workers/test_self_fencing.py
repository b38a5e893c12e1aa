"""A worker that cannot renew a lease ends the attempt before the lease runs out."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, JobState
from tests.running import Connection, EventTap, count, ended, working
from tests.waiting import LIMIT_SECONDS, block_thread, run_until_interrupted, wait_until

# A lease that cannot be renewed is given up long before it runs out, so that no pause of the machine's
# comes in between; and one that can be is renewed so often that a pause does not lose it.
IMPATIENT: dict[str, Any] = {
    "lease_seconds": 4.0,
    "heartbeat_seconds": 0.2,
    "fence_margin_seconds": 2.8,
}


@contextlib.contextmanager
def row_lock(database_url: str, strength: str = "UPDATE") -> Iterator[None]:
    """Locks every job's row: heartbeats are answered with "locked" and renew nothing."""
    with psycopg.connect(database_url) as holder:
        holder.execute(f"SELECT FROM faultline.jobs FOR {strength}")
        yield
        holder.rollback()


@contextlib.contextmanager
def cut_off(server_url: str, conn: Connection) -> Iterator[None]:
    """Ends every other session of the test's database and refuses new ones."""
    name = conn.info.dbname
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = %s AND pid <> %s",
            [name, conn.info.backend_pid],
        )
        try:
            yield
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


class Witness:
    """What happened inside the handler, and how much of the lease was left then."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended_by: str | None = None
        self.expired_by_then: bool | None = None


def register(app: Faultline, witness: Witness, conn: Connection) -> None:
    expired = (
        "SELECT lease_expires_at <= clock_timestamp() FROM faultline.jobs"
        " WHERE id = %s AND state = 'running'"
    )

    def testify(job: Job, error: BaseException) -> None:
        row = conn.execute(expired, [job.id]).fetchone()
        witness.expired_by_then = None if row is None else row[0]
        witness.ended_by = type(error).__name__

    @app.task(name="async", max_attempts=1)
    async def on_loop(job: Job) -> None:
        witness.started.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            testify(job, error)
            raise

    @app.task(name="plain", max_attempts=1)
    def in_thread(job: Job) -> None:
        witness.started.set()
        try:
            run_until_interrupted()
        except BaseException as error:
            testify(job, error)
            raise


ENDED_BY = {"async": "CancelledError", "plain": "AttemptAborted"}


def is_ended_before_the_deadline(
    app: Faultline,
    conn: Connection,
    events: EventTap,
    colour: str,
    trouble: contextlib.AbstractContextManager[None],
) -> None:
    witness = Witness()
    register(app, witness, conn)
    job_id = app.find_task(colour).enqueue().job_id
    with working(app, **IMPATIENT, concurrency=1):
        assert witness.started.wait(LIMIT_SECONDS)
        with trouble:
            wait_until(lambda: witness.ended_by)
    assert witness.ended_by == ENDED_BY[colour]
    assert witness.expired_by_then is False
    assert count(conn, "faultline.ledger") == 0
    lost = [line for line in events.of("lease_lost") if line["token"] == 1]
    assert [(line["job_id"], line["cause"]) for line in lost] == [(str(job_id), "deadline")]


@pytest.mark.parametrize("colour", ENDED_BY)
def test_an_attempt_whose_lease_cannot_be_renewed_is_ended_before_the_deadline(
    app: Faultline, conn: Connection, database_url: str, events: EventTap, colour: str
) -> None:
    is_ended_before_the_deadline(app, conn, events, colour, row_lock(database_url))


@pytest.mark.parametrize("colour", ENDED_BY)
def test_an_attempt_is_ended_when_the_way_to_the_database_is_cut(
    app: Faultline, conn: Connection, server_url: str, events: EventTap, colour: str
) -> None:
    is_ended_before_the_deadline(app, conn, events, colour, cut_off(server_url, conn))


@pytest.mark.parametrize("colour", ENDED_BY)
def test_cancelling_a_running_job_ends_its_handler(
    app: Faultline, conn: Connection, events: EventTap, colour: str
) -> None:
    witness = Witness()
    register(app, witness, conn)
    job_id = app.find_task(colour).enqueue().job_id
    with working(app, heartbeat_seconds=0.2):
        assert witness.started.wait(LIMIT_SECONDS)
        assert app.cancel(job_id, "changed my mind") is JobState.FAILED
        wait_until(lambda: witness.ended_by)
    record = app.get(job_id)
    assert witness.ended_by == ENDED_BY[colour]
    assert (record.state, record.failed_reason) == (JobState.FAILED, "cancelled")
    assert record.last_error == "changed my mind"
    assert count(conn, "faultline.ledger") == 0


def test_the_worker_goes_on_with_other_jobs_after_it_fenced_itself(
    app: Faultline, conn: Connection, database_url: str
) -> None:
    witness = Witness()
    register(app, witness, conn)

    @app.task(name="next")
    async def good(job: Job) -> str:
        return "ran"

    app.find_task("async").enqueue()
    with working(app, **IMPATIENT, concurrency=1):
        assert witness.started.wait(LIMIT_SECONDS)
        with row_lock(database_url):
            wait_until(lambda: witness.ended_by)
        assert ended(app, good.options(priority=0).enqueue().job_id).result == "ran"


def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(
    app: Faultline, events: EventTap
) -> None:
    @app.task()
    async def rude(job: Job) -> int:
        block_thread(2.5)  # longer than the lease
        return job.token

    with working(app, lease_seconds=2, heartbeat_seconds=0.2):
        record = ended(app, rude.enqueue().job_id)
    assert (record.attempts, record.result) == (1, 1)
    assert events.of("lease_lost") == []


def test_without_self_fencing_the_database_alone_refuses(
    app: Faultline, conn: Connection, effects: str, events: EventTap, database_url: str
) -> None:
    go, started = threading.Event(), threading.Event()

    @app.task(max_attempts=1)
    def late(job: Job) -> None:
        started.set()
        assert go.wait(LIMIT_SECONDS)
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES ('late')")

    job_id = late.enqueue().job_id
    with working(app, heartbeat_seconds=0.2, self_fencing=False, concurrency=1):
        assert started.wait(LIMIT_SECONDS)
        app.cancel(job_id)
        wait_until(lambda: events.of("lease_lost"))
        go.set()
        [event] = wait_until(lambda: events.of("stale_write_blocked"))
    assert event["reason"] == "not_running"
    assert count(conn, effects) == 0


def test_a_plain_handler_that_waits_for_the_database_is_ended_too(
    app: Faultline, conn: Connection, effects: str, database_url: str, events: EventTap
) -> None:
    """A thread inside a driver call cannot be interrupted: its session is cut instead."""
    started, unwound = threading.Event(), threading.Event()

    @app.task(max_attempts=1)
    def waiting(job: Job) -> None:
        try:
            with job.transaction() as tx:
                tx.execute("INSERT INTO effects VALUES ('late')")
                started.set()
                tx.execute("SELECT pg_sleep(3600)")
        finally:
            unwound.set()

    waiting.enqueue()
    with working(app, **IMPATIENT, concurrency=1):
        assert started.wait(LIMIT_SECONDS)
        with row_lock(database_url, "NO KEY UPDATE"):  # which the fence of the handler lets pass
            assert unwound.wait(LIMIT_SECONDS)
    assert [line["cause"] for line in events.of("lease_lost")][:1] == ["deadline"]
    assert (count(conn, effects), count(conn, "faultline.ledger")) == (0, 0)
