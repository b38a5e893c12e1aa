"""A worker claims ahead while jobs are short, and releases what it cannot start."""

from __future__ import annotations

import asyncio

from faultline import Faultline, Job
from faultline.config import WorkerSettings
from faultline.workers import Worker
from tests.running import Connection, background, count, value
from tests.waiting import LIMIT_SECONDS, idle, wait_until

# ── the worker ───────────────────────────────────────────────────────────────────────────────────


def test_jobs_claimed_ahead_of_a_slow_job_are_released(app: Faultline, conn: Connection) -> None:
    """Many short jobs, then one that takes long: those behind it must not wait for it."""
    gate = asyncio.Event()
    slow: list[int] = []  # how many waited behind each

    @app.task()
    async def short(job: Job) -> None:
        # Which job takes long is known when the worker has claimed ahead, however fast it is.
        if not slow and (waiting := worker._slots.waiting) > 0:
            slow.append(waiting)
            await asyncio.wait_for(gate.wait(), LIMIT_SECONDS)

    short.enqueue_many([{}] * 3000)
    worker = Worker(app, WorkerSettings(concurrency=1, poll_seconds=0.2))
    released = "SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'released'"
    one_runs = "SELECT count(*) = 1 FROM faultline.jobs WHERE state = 'running'"
    with background(worker.run, stop=worker.stop) as running:
        wait_until(lambda: slow, "a job that takes long before others")
        wait_until(lambda: value(conn, released) >= slow[0], "the release of those behind it")
        wait_until(lambda: value(conn, one_runs), "an end of the commits before it")
        assert value(conn, "SELECT count(*) FROM faultline.jobs WHERE attempts > 1") == 0
        wanted = count(conn, "faultline.ledger") + 1 + slow[0]
        running.call(gate.set)
        wait_until(lambda: count(conn, "faultline.ledger") >= wanted, "its end, and theirs")
    assert value(conn, "SELECT max(attempts) FROM faultline.jobs") == 1


def test_a_stopping_worker_releases_the_jobs_it_claimed_ahead(
    app: Faultline, conn: Connection
) -> None:
    runs = 0

    @app.task()
    async def short(job: Job) -> None:
        nonlocal runs
        runs += 1
        await idle(0.002)
        if runs >= 200 and worker._slots.waiting > 0 and not stopped:
            stopped.append(worker._slots.waiting)
            worker.stop()

    stopped: list[int] = []  # how many waited for a slot then
    short.enqueue_many([{}] * 5000)
    worker = Worker(app, WorkerSettings(concurrency=10, poll_seconds=0.2))
    with background(worker.run, stop=worker.stop) as running:
        wait_until(lambda: not running.is_alive, "the end of the worker")
    held = "SELECT count(*) FROM faultline.jobs WHERE state = 'running'"
    assert value(conn, held) == 0
    done = count(conn, "faultline.ledger")
    assert 200 <= done < 5000
    assert value(conn, "SELECT count(*) FROM faultline.jobs WHERE state = 'queued'") == 5000 - done
    assert value(conn, "SELECT max(attempts) FROM faultline.jobs WHERE state = 'queued'") == 0
    released = "SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'released'"
    assert value(conn, released) >= stopped[0] > 0
