"""batch.transaction(): one transaction for all jobs, each with its entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from faultline import (
    Batch,
    Faultline,
    InvalidInput,
    JobState,
    NotCommitted,
    RetryPolicy,
    StaleLease,
)
from faultline.testing import run_until_idle
from faultline.testing.inline_worker import HandlerFailed
from tests.running import (
    Connection,
    EventTap,
    count,
    rejections,
    take_over,
    value,
    wait_for_the_first_heartbeat,
    working,
)
from tests.waiting import wait_until

QUICK = RetryPolicy(base_seconds=0.01, cap_seconds=0.02)
WRITE = "INSERT INTO effects VALUES (%s)"
COLOURS = pytest.mark.parametrize("colour", ["async", "plain"])


def enqueue(app: Faultline, jobs: int, task: str = "store") -> list[UUID]:
    payloads = [{"number": number} for number in range(jobs)]
    return [each.job_id for each in app.find_task(task).enqueue_many(payloads)]


def written(conn: Connection) -> Counter[str]:
    return Counter(note for (note,) in conn.execute("SELECT note FROM effects"))


def states(conn: Connection) -> Counter[str]:
    return Counter(state for (state,) in conn.execute("SELECT state FROM faultline.jobs"))


def work_until(conn: Connection, app: Faultline, jobs: int, state: str = "succeeded") -> None:
    with working(app):
        wait_until(lambda: states(conn)[state] == jobs, f"{jobs} jobs that are {state}")


@COLOURS
def test_writes_entries_and_success_of_all_jobs_are_one_transaction(
    app: Faultline, conn: Connection, effects: str, colour: str
) -> None:
    sizes: list[int] = []

    async def on_loop(batch: Batch[dict[str, Any]]) -> None:
        sizes.append(len(batch))
        async with batch.transaction() as tx:
            for job in batch:
                await tx.execute(WRITE, [str(job.args["number"])])

    def in_thread(batch: Batch[dict[str, Any]]) -> None:
        sizes.append(len(batch))
        with batch.transaction() as tx:
            for job in batch:
                tx.execute(WRITE, [str(job.args["number"])])

    handler = on_loop if colour == "async" else in_thread
    app.batch_task(name="store", max_size=50)(handler)
    enqueue(app, 100)
    work_until(conn, app, 100)
    assert sizes == [50, 50]
    assert written(conn) == Counter(str(number) for number in range(100))
    assert value(conn, "SELECT count(DISTINCT xmin::text) FROM effects") == 2
    together = (
        "SELECT count(*) FROM effects AS e JOIN faultline.jobs AS j ON j.payload ->> 'number' = e.note"
        " JOIN faultline.ledger AS l ON l.job_id = j.id WHERE e.xmin = l.xmin AND l.xmin = j.xmin"
    )
    assert value(conn, together) == 100


def test_each_job_of_a_batch_has_its_own_result(app: Faultline, conn: Connection) -> None:
    @app.batch_task(name="in_transaction")
    async def in_transaction(batch: Batch[dict[str, Any]]) -> None:
        async with batch.transaction():
            for job in batch:
                job.result = job.args["number"] * 2

    @app.batch_task(name="without")
    def without(batch: Batch[dict[str, Any]]) -> None:
        for job in batch:
            job.result = job.args["number"] * 2

    ids = [*enqueue(app, 3, "in_transaction"), *enqueue(app, 3, "without")]
    run_until_idle(app)
    assert [app.get(job_id).result for job_id in ids] == [0, 2, 4, 0, 2, 4]


def test_a_return_without_a_transaction_completes_all_jobs(
    app: Faultline, conn: Connection
) -> None:
    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        pass

    enqueue(app, 30)
    work_until(conn, app, 30)
    assert count(conn, "faultline.ledger") == 30


@dataclass
class Payment:
    number: int
    note: str = "none"


def test_arguments_may_be_a_class_and_are_checked(app: Faultline, conn: Connection) -> None:
    seen: list[Payment] = []

    @app.batch_task(name="pay", arguments=Payment)
    def pay(batch: Batch[Payment]) -> None:
        seen.extend(job.args for job in batch)

    pay.enqueue(1)
    pay.enqueue(number=2, note="second")
    with pytest.raises(InvalidInput, match="amount"):
        pay.enqueue(amount=3)  # type: ignore[call-arg]
    conn.execute("SELECT faultline.enqueue('pay', '{\"number\": 4, \"more\": 1}')")
    run_until_idle(app, raise_errors=False)
    assert seen == [Payment(1), Payment(2, "second")]
    failed = value(conn, "SELECT last_error FROM faultline.jobs WHERE last_error IS NOT NULL")
    assert "more" in failed


# ── a lost lease ─────────────────────────────────────────────────────────────────────────────────


def lose(conn: Connection, lost: Sequence[UUID]) -> None:
    for job_id in lost:
        conn.execute(
            "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'"
            " WHERE id = %s",
            [job_id],
        )


@COLOURS
@pytest.mark.parametrize("stale", [[0], [57], [99], [3, 4, 98]], ids=str)
def test_a_batch_of_100_with_stale_jobs_commits_the_others_once(
    app: Faultline,
    conn: Connection,
    effects: str,
    events: EventTap,
    colour: str,
    stale: list[int],
) -> None:
    """The lease of these jobs goes to another worker while the handler runs."""
    sizes: list[int] = []
    ids: list[UUID] = []

    def usurp(batch: Batch[dict[str, Any]]) -> None:
        sizes.append(len(batch))
        if len(sizes) == 1:
            wait_for_the_first_heartbeat(conn)
            ids.extend(job.id for job in batch)
            for position in stale:
                take_over(conn, ids[position])

    async def on_loop(batch: Batch[dict[str, Any]]) -> None:
        usurp(batch)
        async with batch.transaction() as tx:
            for job in batch:
                await tx.execute(WRITE, [str(job.id)])

    def in_thread(batch: Batch[dict[str, Any]]) -> None:
        usurp(batch)
        with batch.transaction() as tx:
            for job in batch:
                tx.execute(WRITE, [str(job.id)])

    app.batch_task(name="store", max_size=100)(on_loop if colour == "async" else in_thread)
    enqueue(app, 100)
    work_until(conn, app, 100 - len(stale))
    lost = {ids[position] for position in stale}
    assert sizes == [100, 100 - len(stale)]
    assert written(conn) == Counter(str(job_id) for job_id in ids if job_id not in lost)
    for job_id in lost:
        assert rejections(conn, job_id) == [(1, 2, "token_mismatch")]
        assert app.get(job_id).lease_owner == "usurper"
    assert len(events.of("stale_write_blocked")) == len(stale)


def test_a_handler_that_swallows_the_refusal_still_commits_nothing_of_it(
    app: Faultline, conn: Connection, effects: str
) -> None:
    runs: list[int] = []

    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        runs.append(len(batch))
        if len(runs) == 1:
            wait_for_the_first_heartbeat(conn)
            take_over(conn, batch.jobs[2].id)
        try:
            async with batch.transaction() as tx:
                await tx.execute(WRITE, [f"run {len(runs)}"])
        except StaleLease:
            pass

    enqueue(app, 5)
    work_until(conn, app, 4)
    assert (runs, written(conn)) == ([5, 4], Counter({"run 2": 1}))


def test_a_batch_whose_leases_are_all_lost_ends_without_another_run(
    app: Faultline, conn: Connection, effects: str
) -> None:
    runs: list[int] = []

    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        runs.append(len(batch))
        wait_for_the_first_heartbeat(conn)
        for job in batch:
            take_over(conn, job.id)
        async with batch.transaction() as tx:
            await tx.execute(WRITE, ["late"])

    enqueue(app, 3)
    with working(app):
        wait_until(lambda: count(conn, "faultline.rejections") == 3, "the refusals")
    assert (runs, count(conn, effects)) == ([3], 0)


def test_a_cancelled_job_falls_out_and_the_handler_runs_again_without_it(
    app: Faultline, conn: Connection, effects: str
) -> None:
    runs: list[int] = []
    cancelled: list[UUID] = []

    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        runs.append(len(batch))
        if not cancelled:
            cancelled.append(batch.jobs[1].id)
            conn.execute("SELECT faultline.cancel(%s)", [cancelled[0]])
        async with batch.transaction() as tx:
            for job in batch:
                await tx.execute(WRITE, [str(job.id)])

    enqueue(app, 4)
    work_until(conn, app, 3)
    assert runs == [4, 3]
    assert str(cancelled[0]) not in written(conn)
    assert app.get(cancelled[0]).state is JobState.FAILED


# ── what a job of a batch may not do ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["transaction", "fenced", "session", "atomic"])
def test_one_job_of_a_batch_cannot_commit_alone(app: Faultline, method: str) -> None:
    @app.batch_task(name="store", max_attempts=1)
    def store(batch: Batch[dict[str, Any]]) -> None:
        getattr(batch.jobs[0], method)()

    [job_id] = enqueue(app, 1)
    with pytest.raises(InvalidInput, match=r"batch\.transaction"):
        run_until_idle(app)
    assert app.get(job_id).state is JobState.FAILED


def test_a_rolled_back_transaction_fails_the_batch(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.batch_task(name="store", max_attempts=1)
    async def store(batch: Batch[dict[str, Any]]) -> None:
        try:
            async with batch.transaction() as tx:
                await tx.execute(WRITE, ["lost"])
                raise ValueError("swallowed")
        except ValueError:
            pass

    enqueue(app, 2)
    with pytest.raises(HandlerFailed, match="not committed"):
        run_until_idle(app)
    assert (states(conn), count(conn, effects)) == (Counter(failed=2), 0)


def test_two_transactions_at_once_are_refused(app: Faultline, effects: str) -> None:
    @app.batch_task(name="store", max_attempts=1)
    async def store(batch: Batch[dict[str, Any]]) -> None:
        async with batch.transaction(), batch.transaction():
            pass

    enqueue(app, 2)
    with pytest.raises(InvalidInput, match="open"):
        run_until_idle(app)


def test_a_fenced_step_commits_at_once_and_the_jobs_go_on(
    app: Faultline, conn: Connection, effects: str
) -> None:
    @app.batch_task(name="store", max_attempts=1)
    def store(batch: Batch[dict[str, Any]]) -> None:
        with batch.fenced() as tx:
            tx.execute(WRITE, ["step"])
        assert (count(conn, effects), count(conn, "faultline.ledger")) == (1, 0)
        with batch.transaction() as tx:
            tx.execute(WRITE, ["end"])

    enqueue(app, 3)
    run_until_idle(app)
    assert written(conn) == Counter(step=1, end=1)
    assert count(conn, "faultline.ledger") == 3


def test_a_transaction_on_a_connection_of_the_users_is_fenced_too(
    app: Faultline, conn: Connection, effects: str
) -> None:
    runs: list[int] = []

    @app.batch_task(name="store")
    def store(batch: Batch[dict[str, Any]]) -> None:
        import psycopg

        runs.append(len(batch))
        if len(runs) == 1:
            wait_for_the_first_heartbeat(conn)
            take_over(conn, batch.jobs[0].id)
        with psycopg.connect(app.database_url, autocommit=True) as own, batch.transaction(own):
            own.execute(WRITE, [f"run {len(runs)}"])

    enqueue(app, 3)
    work_until(conn, app, 2)
    assert (runs, written(conn)) == ([3, 2], Counter({"run 2": 1}))


def test_a_batch_with_no_jobs_left_has_nothing_to_commit(app: Faultline, conn: Connection) -> None:
    said: list[Exception] = []

    @app.batch_task(name="store", max_attempts=1)
    async def store(batch: Batch[dict[str, Any]]) -> None:
        for job in batch:
            batch.fail(job, ValueError("no"))
        try:
            async with batch.transaction():
                pass
        except NotCommitted as error:
            said.append(error)

    enqueue(app, 2)
    run_until_idle(app, raise_errors=False)
    assert len(said) == 1
    assert states(conn) == Counter(failed=2)
