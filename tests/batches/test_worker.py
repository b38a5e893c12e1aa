"""How a worker collects, starts and shows batches."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from faultline import Batch, Faultline, Job, JobState, Limit, current_job
from faultline.logs import annotate_records
from faultline.testing import run_one, run_until_idle
from tests.lease_history import most_leases
from tests.running import Connection, count, value, working
from tests.waiting import LIMIT_SECONDS, idle, wait_until

from .test_transaction import WRITE, enqueue, states, work_until, written


class Sizes:
    """A batch task that notes the size of each call, and how many ran at once."""

    def __init__(self, app: Faultline, rest: float = 0, **options: Any) -> None:
        self.seen: list[int] = []
        self.tasks: list[set[str]] = []
        self.at_once = 0
        self._running = 0
        self._rest = rest
        app.batch_task(name="store", **options)(self._run_async())

    def _run_async(self) -> Any:
        async def run(batch: Batch[dict[str, Any]]) -> None:
            self._running += 1
            self.at_once = max(self.at_once, self._running)
            self.seen.append(len(batch))
            self.tasks.append({f"{job.task} {job.queue}" for job in batch})
            await idle(self._rest)
            async with batch.transaction():
                pass
            self._running -= 1

        return run


# ── collecting ───────────────────────────────────────────────────────────────────────────────────


def test_jobs_that_come_within_the_wait_are_one_batch(app: Faultline, conn: Connection) -> None:
    sizes = Sizes(app, max_size=5, max_wait=LIMIT_SECONDS)
    with working(app):
        for number in range(5):
            wait_until(lambda n=number: states(conn)["running"] == n, "the claims before")  # type: ignore[misc]
            enqueue(app, 1)
        wait_until(lambda: states(conn)["succeeded"] == 5, "the batch")
    assert sizes.seen == [5]


def test_a_batch_that_does_not_fill_starts_after_the_wait(app: Faultline, conn: Connection) -> None:
    sizes = Sizes(app, max_size=500, max_wait=0.2)
    enqueue(app, 7)
    work_until(conn, app, 7)
    assert sizes.seen == [7]


def test_a_large_backlog_is_done_in_full_batches(app: Faultline, conn: Connection) -> None:
    sizes = Sizes(app, max_size=100, queue="stored", rest=0.01)
    enqueue(app, 3_000)
    with working(app, queues=("stored",), concurrency=4):
        wait_until(lambda: states(conn)["succeeded"] == 3_000, "all jobs")
    assert sum(sizes.seen) == 3_000
    assert Counter(sizes.seen)[100] >= 25
    assert sizes.at_once <= 4


def test_jobs_that_are_collected_when_the_worker_stops_are_released(
    app: Faultline, conn: Connection
) -> None:
    sizes = Sizes(app, max_size=5, max_wait=60)
    ids = enqueue(app, 2)
    with working(app):
        wait_until(lambda: states(conn)["running"] == 2, "the claim")
    assert sizes.seen == []
    assert states(conn) == Counter(queued=2)
    assert {app.get(job_id).attempts for job_id in ids} == {0}


def test_a_batch_has_jobs_of_one_task_and_one_queue(app: Faultline, conn: Connection) -> None:
    first = Sizes(app, max_size=20)
    others: list[set[str]] = []

    @app.batch_task(name="other", max_size=20)
    def other(batch: Batch[dict[str, Any]]) -> None:
        others.append({f"{job.task} {job.queue}" for job in batch})

    @app.task(name="plain")
    async def plain(job: Job) -> None: ...

    store = app.find_task("store")
    for _ in range(10):
        store.enqueue()
        store.options(queue="second").enqueue()
        other.enqueue()
        plain.enqueue()
    with working(app, queues=("default", "second")):
        wait_until(lambda: states(conn)["succeeded"] == 40, "all jobs")
    assert all(len(each) == 1 for each in [*first.tasks, *others])
    assert set().union(*first.tasks) == {"store default", "store second"}
    assert set().union(*others) == {"other default"}


def test_slots_and_other_jobs_of_a_worker_are_shared(app: Faultline, conn: Connection) -> None:
    """Plain jobs run beside batches, and no more handlers run than there are slots."""
    sizes = Sizes(app, max_size=10, rest=0.005)
    running: list[int] = []

    @app.task(name="plain")
    async def plain(job: Job) -> None:
        running.append(sizes._running)
        await idle(0.001)

    enqueue(app, 300)
    plain.enqueue_many([{}] * 300)
    with working(app, concurrency=3):
        wait_until(lambda: states(conn)["succeeded"] == 600, "all jobs")
    assert max(running) <= 2
    assert sizes.at_once <= 3


def test_a_batch_takes_one_slot_of_its_queue(app: Faultline, conn: Connection) -> None:
    sizes = Sizes(app, max_size=10, queue="stored", rest=0.01)
    enqueue(app, 200)
    with working(app, queues={"stored": 2}, concurrency=5):
        wait_until(lambda: states(conn)["succeeded"] == 200, "all jobs")
    assert sizes.at_once <= 2
    assert Counter(sizes.seen)[10] >= 15
    assert most_leases(conn)["stored"] <= 20


def test_a_batch_has_no_more_jobs_than_a_limit_allows(app: Faultline, conn: Connection) -> None:
    sizes = Sizes(app, max_size=50, max_wait=0.01, concurrency=Limit(4))
    enqueue(app, 40)
    work_until(conn, app, 40)
    assert max(sizes.seen) <= 4
    assert count(conn, "faultline.places") == 0


def test_the_most_jobs_of_a_worker_bound_its_batches(app: Faultline, conn: Connection) -> None:
    sizes = Sizes(app, max_size=50)
    enqueue(app, 30)
    assert run_one(app) is not None
    assert sizes.seen == [1]
    attempted = run_until_idle(app)
    assert (sizes.seen, len(attempted)) == ([1, 29], 29)


# ── around the handler ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_hooks_run_around_the_handler_for_each_job(app: Faultline, colour: str) -> None:
    seen: list[str] = []

    @app.around_attempt
    def note(job: Job) -> Iterator[None]:
        seen.append(f"begins {job.id}")
        yield
        seen.append(f"ends {job.id}")

    async def on_loop(batch: Batch[dict[str, Any]]) -> None:
        seen.append(f"handler {len(batch)}")

    def in_thread(batch: Batch[dict[str, Any]]) -> None:
        seen.append(f"handler {len(batch)}")

    app.batch_task(name="store")(on_loop if colour == "async" else in_thread)
    ids = enqueue(app, 3)
    run_until_idle(app)
    begins = [f"begins {job_id}" for job_id in ids]
    ends = [f"ends {job_id}" for job_id in reversed(ids)]
    assert seen == [*begins, "handler 3", *ends]


def test_the_transaction_is_prepared_with_the_batch(
    app: Faultline, conn: Connection, effects: str
) -> None:
    seen: list[tuple[str, str, int]] = []

    def prepare(batch: Any, tx: Any) -> None:
        seen.append((batch.task, batch.queue, len(batch.jobs)))
        tx.execute(WRITE, ["prepared"])

    app.prepare_transaction = prepare

    @app.batch_task(name="store")
    def store(batch: Batch[dict[str, Any]]) -> None:
        with batch.transaction() as tx:
            tx.execute(WRITE, ["handled"])

    enqueue(app, 2)
    run_until_idle(app)
    assert seen == [("store", "default", 2)]
    assert written(conn) == Counter(["prepared", "handled"])


def test_a_log_line_of_a_batch_handler_has_its_task_and_its_size(
    app: Faultline, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[logging.LogRecord] = []
    logger = logging.getLogger("faultline-test-batches")
    monkeypatch.setattr(logger, "handlers", [logging.Handler()])
    monkeypatch.setattr(logger.handlers[0], "emit", lines.append)
    before = logging.getLogRecordFactory()
    annotate_records()
    no_job: list[bool] = []

    @app.batch_task(name="store")
    async def store(batch: Batch[dict[str, Any]]) -> None:
        logger.warning("storing")
        no_job.append(current_job() is None)

    enqueue(app, 4)
    try:
        run_until_idle(app)
    finally:
        logging.setLogRecordFactory(before)
    [line] = lines
    assert (vars(line)["faultline_task"], vars(line)["faultline_batch_jobs"]) == ("store", 4)
    assert vars(line)["faultline_job_id"] is None
    assert no_job == [True]


def test_a_running_batch_is_shown_on_its_jobs_unless_they_report_more(
    app: Faultline, conn: Connection
) -> None:
    """This is what the dashboard, the API and `faultline jobs show` print."""
    gate = threading.Event()

    @app.batch_task(name="store", max_size=3)
    async def store(batch: Batch[dict[str, Any]]) -> None:
        batch.jobs[1].progress(0.5, "half of it")
        await asyncio.to_thread(gate.wait, LIMIT_SECONDS)

    ids = enqueue(app, 3)

    def messages() -> list[str | None]:
        shown = [app.get(job_id).progress for job_id in ids]
        return [None if each is None else each.message for each in shown]

    with working(app):
        expected = ["in a batch of 3", "half of it", "in a batch of 3"]
        wait_until(lambda: messages() == expected, lambda: str(messages()))
        gate.set()
        wait_until(lambda: states(conn)["succeeded"] == 3, "the end")


def test_a_job_whose_worker_was_lost_runs_alone(app: Faultline, conn: Connection) -> None:
    sizes = Sizes(app, max_size=10)
    ids = enqueue(app, 5)
    conn.execute("UPDATE faultline.jobs SET crashes = 1 WHERE id = %s", [ids[2]])
    work_until(conn, app, 5)
    assert sorted(sizes.seen) == [1, 4]
    assert app.get(ids[2]).state is JobState.SUCCEEDED


def test_leases_of_a_collecting_batch_are_renewed(app: Faultline, conn: Connection) -> None:
    Sizes(app, max_size=5, max_wait=60)
    enqueue(app, 2)
    first = "SELECT min(claimed_at) FROM faultline.jobs"
    renewed = "SELECT bool_and(lease_expires_at > claimed_at + interval '2.5 seconds') FROM faultline.jobs"
    with working(app, lease_seconds=2.0):
        wait_until(lambda: value(conn, first) is not None, "the claim")
        wait_until(lambda: value(conn, renewed), "the renewals")
        assert states(conn) == Counter(running=2)
