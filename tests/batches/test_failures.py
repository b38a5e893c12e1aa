"""Jobs of a batch that fail, alone or together; what runs again."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from faultline import (
    Batch,
    BatchJob,
    Faultline,
    InvalidInput,
    JobRecord,
    JobState,
    NotCommitted,
    Reject,
    Retry,
    RetryPolicy,
    Snooze,
)
from faultline.testing import run_until_idle
from tests.running import Connection, EventTap, count, expire, value, working
from tests.waiting import wait_until

from .test_transaction import COLOURS, QUICK, WRITE, enqueue, states, work_until, written

Fails = Callable[[Batch[dict[str, Any]], BatchJob[dict[str, Any]]], None]


def define(app: Faultline, colour: str, each: Fails, sizes: list[int], **options: Any) -> None:
    """A task that calls `each` for each job in its transaction before it writes."""

    async def on_loop(batch: Batch[dict[str, Any]]) -> None:
        sizes.append(len(batch))
        async with batch.transaction() as tx:
            for job in batch:
                each(batch, job)
                await tx.execute(WRITE, [str(job.args["number"])])

    def in_thread(batch: Batch[dict[str, Any]]) -> None:
        sizes.append(len(batch))
        with batch.transaction() as tx:
            for job in batch:
                each(batch, job)
                tx.execute(WRITE, [str(job.args["number"])])

    handler = on_loop if colour == "async" else in_thread
    app.batch_task(name="store", **options)(handler)


@COLOURS
def test_jobs_that_fail_inside_the_block_leave_no_write_behind(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    """The handler writes for the failed jobs too; it runs again without them."""
    sizes: list[int] = []

    def fail_two(batch: Batch[dict[str, Any]], job: BatchJob[dict[str, Any]]) -> None:
        if job.args["number"] in (3, 7):
            batch.fail(job, Reject("not this one"))

    define(app, colour, fail_two, sizes)
    enqueue(app, 10)
    work_until(conn, app, 8)
    assert sizes == [10, 8]
    assert written(conn) == Counter(str(n) for n in range(10) if n not in (3, 7))
    failed = "SELECT count(*) FROM faultline.jobs WHERE failed_reason = 'rejected'"
    wait_until(lambda: value(conn, failed) == 2, "the failures")


@COLOURS
def test_a_handler_that_swallows_the_rollback_of_its_block_runs_again_too(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    sizes: list[int] = []
    said: list[str] = []

    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        sizes.append(len(batch))
        try:
            async with batch.transaction() as tx:
                await tx.execute(WRITE, [f"run {len(sizes)}"])
                if len(sizes) == 1:
                    batch.fail(batch.jobs[0], Reject("no"))
        except NotCommitted as error:
            said.append(error.code)

    enqueue(app, 3)
    work_until(conn, app, 2)
    assert (sizes, len(said), written(conn)) == ([3, 2], 1, Counter({"run 2": 1}))


def test_each_job_that_fails_before_the_block_ends_in_its_own_way(
    app: Faultline, conn: Connection, effects: str
) -> None:
    errors: dict[int, Exception] = {
        0: ValueError("broken"),
        1: Reject("never"),
        2: Snooze(600, reason="later"),
        3: Retry(after=500),
        4: KeyError("gives up"),
    }
    sizes: list[int] = []
    policy = RetryPolicy(base_seconds=100, give_up_on=(KeyError,))

    @app.batch_task(name="store", retry=policy)
    async def store(batch: Batch[dict[str, Any]]) -> None:
        sizes.append(len(batch))
        for job in batch:
            if error := errors.get(job.args["number"]):
                batch.fail(job, error)
        async with batch.transaction() as tx:
            for job in batch:
                await tx.execute(WRITE, [str(job.args["number"])])

    ids = enqueue(app, 7)
    run_until_idle(app, raise_errors=False)
    assert sizes == [7]
    assert written(conn) == Counter(["5", "6"])
    ends = [(record.state, record.failed_reason, record.attempts) for record in map(app.get, ids)]
    assert ends == [
        (JobState.QUEUED, None, 1),
        (JobState.FAILED, "rejected", 1),
        (JobState.QUEUED, None, 0),
        (JobState.QUEUED, None, 1),
        (JobState.FAILED, "gave_up", 1),
        (JobState.SUCCEEDED, None, 1),
        (JobState.SUCCEEDED, None, 1),
    ]
    waits = "SELECT extract(epoch FROM next_run_at - clock_timestamp()) FROM faultline.jobs WHERE id = %s"
    assert 400 < value(conn, waits, ids[3]) <= 500 < value(conn, waits, ids[2]) <= 600


def test_without_a_transaction_the_other_jobs_are_completed(
    app: Faultline, conn: Connection
) -> None:
    @app.batch_task(name="store", max_attempts=1)
    def store(batch: Batch[dict[str, Any]]) -> None:
        for job in batch:
            if job.args["number"] % 2:
                batch.fail(job, ValueError("odd"))
            else:
                job.result = job.args["number"]

    ids = enqueue(app, 6)
    run_until_idle(app, raise_errors=False)
    assert states(conn) == Counter(succeeded=3, failed=3)
    assert app.get(ids[4]).result == 4


def test_a_job_that_fails_in_a_step_makes_the_handler_run_again(
    app: Faultline, conn: Connection, effects: str
) -> None:
    """Also if the handler swallows the end of the step and returns."""
    sizes: list[int] = []

    @app.batch_task
    def store(batch: Batch[dict[str, Any]]) -> None:
        sizes.append(len(batch))
        try:
            with batch.fenced() as tx:
                tx.execute(WRITE, [f"run {len(sizes)}"])
                if len(sizes) == 1:
                    batch.fail(batch.jobs[0], Reject("no"))
        except NotCommitted:
            pass

    store.enqueue_many([{}] * 3)
    run_until_idle(app, raise_errors=False)
    assert (sizes, written(conn)) == ([3, 2], Counter({"run 2": 1}))
    assert states(conn) == Counter(succeeded=2, failed=1)


def test_a_job_that_was_committed_cannot_fail_any_more(
    app: Faultline, conn: Connection, effects: str, events: EventTap
) -> None:
    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        async with batch.transaction():
            pass
        batch.fail(batch.jobs[0], ValueError("too late"))

    enqueue(app, 2)
    work_until(conn, app, 2)
    [late] = events.of("handler_error_after_commit")
    assert "has been committed" in late["error"]


def test_a_job_of_another_batch_cannot_be_failed(app: Faultline) -> None:
    others: list[BatchJob[dict[str, Any]]] = []

    @app.batch_task(name="store", max_attempts=1, max_size=1)
    def store(batch: Batch[dict[str, Any]]) -> None:
        if others:
            batch.fail(others[0], ValueError("not mine"))
        others.append(batch.jobs[0])

    enqueue(app, 2)
    with pytest.raises(InvalidInput, match="not a job of this batch"):
        run_until_idle(app)


# ── all jobs together ────────────────────────────────────────────────────────────────────────────


def test_a_job_that_makes_the_handler_raise_ends_up_alone(
    app: Faultline, conn: Connection, effects: str
) -> None:
    """The others of its batch succeed in their second or third attempt."""
    sizes: list[int] = []

    def raise_for_one(batch: Batch[dict[str, Any]], job: BatchJob[dict[str, Any]]) -> None:
        if job.args["number"] == 13:
            raise ValueError("thirteen")

    define(app, "async", raise_for_one, sizes, retry=QUICK, max_attempts=4, max_size=40)
    ids = enqueue(app, 40)
    with working(app):
        wait_until(lambda: states(conn) == Counter(succeeded=39, failed=1), "the end of all jobs")
    assert sizes[0] == 40
    assert all(size <= 4 for size in sizes[1:])
    assert written(conn) == Counter(str(n) for n in range(40) if n != 13)
    assert app.get(ids[13]).state is JobState.FAILED
    attempts = Counter(app.get(job_id).attempts for job_id in ids)
    assert attempts[4] == 1
    assert attempts[2] >= 36


@pytest.mark.parametrize(
    ("error", "state", "attempts"),
    [(Snooze(600), "queued", 0), (Retry(after=600), "queued", 1), (Reject("no"), "failed", 1)],
    ids=["snooze", "retry", "reject"],
)
def test_a_request_that_the_handler_raises_is_for_all_jobs(
    app: Faultline, conn: Connection, effects: str, error: Exception, state: str, attempts: int
) -> None:
    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        async with batch.transaction() as tx:
            await tx.execute(WRITE, ["rolled back"])
            raise error

    ids = enqueue(app, 3)
    run_until_idle(app, raise_errors=False)
    assert states(conn) == Counter({state: 3})
    assert {app.get(job_id).attempts for job_id in ids} == {attempts}
    assert count(conn, effects) == 0


@COLOURS
@pytest.mark.parametrize("whose", ["task", "job"])
def test_a_timeout_ends_the_call_and_fails_all_jobs(
    app: Faultline, conn: Connection, effects: str, colour: str, whose: str
) -> None:
    async def on_loop(batch: Batch[dict[str, Any]]) -> None:
        async with batch.transaction() as tx:
            await tx.execute(WRITE, ["late"])
            await tx.execute("SELECT pg_sleep(60)")

    def in_thread(batch: Batch[dict[str, Any]]) -> None:
        with batch.transaction() as tx:
            tx.execute(WRITE, ["late"])
            tx.execute("SELECT pg_sleep(60)")

    own = 0.3 if whose == "task" else 50
    handler = on_loop if colour == "async" else in_thread
    task = app.batch_task(name="store", max_attempts=1, timeout=own)(handler)
    jobs = [task.job(number=0), task.job(number=1)]
    if whose == "job":
        jobs[1] = task.options(timeout=0.3).job(number=1)
    app.enqueue_many(jobs)
    with working(app):
        wait_until(lambda: states(conn)["failed"] == 2, "the failures")
    errors = conn.execute("SELECT DISTINCT last_error FROM faultline.jobs").fetchall()
    assert [error.splitlines()[0] for (error,) in errors] == [
        "AttemptTimeout: store ran longer than 0.3 s"
    ]
    assert count(conn, effects) == 0


def test_a_drained_worker_releases_all_jobs_of_its_batch(
    app: Faultline, conn: Connection, effects: str
) -> None:
    began = threading.Event()

    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        began.set()
        async with batch.transaction() as tx:
            await tx.execute(WRITE, ["never"])
            await asyncio.sleep(600)

    ids = enqueue(app, 4)
    with working(app, drain_seconds=0.1):
        assert began.wait(45)
    assert states(conn) == Counter(queued=4)
    assert {app.get(job_id).attempts for job_id in ids} == {0}
    assert count(conn, effects) == 0


def test_batches_that_wait_for_each_others_rows_both_commit(
    app: Faultline, conn: Connection, effects: str
) -> None:
    """PostgreSQL ends one of the two; its handler runs again in the same attempt."""
    conn.execute(
        "CREATE TABLE totals (id int PRIMARY KEY, n int); INSERT INTO totals VALUES (1, 0), (2, 0)"
    )
    met = threading.Barrier(2, timeout=45)
    runs: list[int] = []

    @app.batch_task(name="store", max_size=1)
    def store(batch: Batch[dict[str, Any]]) -> None:
        runs.append(len(batch))
        first = 1 + batch.jobs[0].args["number"]
        with batch.transaction() as tx:
            tx.execute("UPDATE totals SET n = n + 1 WHERE id = %s", [first])
            if len(runs) <= 2:
                met.wait()
            tx.execute("UPDATE totals SET n = n + 1 WHERE id = %s", [3 - first])

    ids = enqueue(app, 2)
    work_until(conn, app, 2)
    assert len(runs) >= 3  # the second run may meet the other batch again
    assert conn.execute("SELECT n FROM totals").fetchall() == [(2,), (2,)]
    assert [app.get(job_id).attempts for job_id in ids] == [1, 1]


def test_a_job_whose_lease_is_found_lost_while_the_handler_runs_falls_out_at_once(
    app: Faultline, conn: Connection, effects: str, events: EventTap
) -> None:
    """The heartbeat learns of the cancellation, and ends the waiting handler."""
    runs: list[list[UUID]] = []

    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        runs.append([job.id for job in batch])
        if len(runs) == 1:
            await asyncio.sleep(600)
        async with batch.transaction() as tx:
            await tx.execute(WRITE, [str(len(batch))])

    enqueue(app, 3)
    with working(app, lease_seconds=2.0):
        wait_until(lambda: runs, "the first run")
        conn.execute("SELECT faultline.cancel(%s)", [runs[0][1]])
        wait_until(lambda: states(conn)["succeeded"] == 2, "the others")
    assert runs[1] == [runs[0][0], runs[0][2]]
    assert written(conn) == Counter(["2"])
    assert [event["job_id"] for event in events.of("lease_lost")] == [str(runs[0][1])]


def test_the_dead_hook_is_called_for_each_job(app: Faultline, conn: Connection) -> None:
    dead: list[UUID] = []

    @app.on_dead
    def note(record: JobRecord, error: Exception | None) -> None:
        assert str(error) == "all of them"
        dead.append(record.id)

    @app.batch_task(name="store", max_attempts=1)
    def store(batch: Batch[dict[str, Any]]) -> None:
        raise ValueError("all of them")

    ids = enqueue(app, 3)
    with working(app):
        wait_until(lambda: len(dead) == 3, "the hooks")
    assert sorted(dead) == sorted(ids)


def test_a_payload_that_does_not_fit_fails_its_own_job(app: Faultline, conn: Connection) -> None:
    def make(number: int) -> int:
        if number == 1:
            raise ValueError("one is refused")
        return number

    seen: list[int] = []

    @app.batch_task(name="store", arguments=make, max_attempts=1)
    def store(batch: Batch[int]) -> None:
        seen.extend(job.args for job in batch)

    ids = enqueue(app, 3)
    run_until_idle(app, raise_errors=False)
    assert seen == [0, 2]
    failed = app.get(ids[1])
    assert failed.state is JobState.FAILED
    assert "one is refused" in str(failed.last_error)


def test_leases_that_run_out_during_the_transaction_refuse_it_for_all(
    app: Faultline, conn: Connection, effects: str
) -> None:
    """The clock of the database decides when the entries are inserted."""
    runs: list[int] = []

    @app.batch_task(name="store", retry=QUICK)
    def store(batch: Batch[dict[str, Any]]) -> None:
        runs.append(len(batch))
        with batch.transaction() as tx:
            tx.execute(WRITE, [f"run {len(runs)}"])
            if len(runs) == 1:
                for job in batch:
                    expire(conn, job.id)

    enqueue(app, 3)
    with working(app, lease_seconds=600):  # no heartbeat renews them meanwhile
        wait_until(lambda: states(conn)["succeeded"] == 3, "the second attempts")
    assert "run 1" not in written(conn)
    assert count(conn, "faultline.ledger") == 3
