"""Jobs that do not suspend share an asyncio task and leave each other nothing."""

from __future__ import annotations

import asyncio
import contextvars
import time
from typing import Any

from faultline import Faultline, Job
from faultline.logs import current_job
from faultline.workers.slots import _is_same
from tests.running import Connection, count, value, working
from tests.waiting import LIMIT_SECONDS, wait_until

JOBS = 200
note: contextvars.ContextVar[Any] = contextvars.ContextVar("note", default=None)


class Incomparable:
    """A value like an array of numpy, which refuses to be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


def drain(app: Faultline, conn: Connection, jobs: int = JOBS, **settings: Any) -> None:
    with working(app, **settings):
        wait_until(lambda: count(conn, "faultline.ledger") == jobs, "the end of all jobs")


def test_handlers_that_do_not_suspend_share_a_task_and_see_their_own_job(
    app: Faultline, conn: Connection
) -> None:
    seen: list[bool] = []
    tasks = list[Any]()  # kept, so that no two have the same id

    @app.task()
    async def brief(job: Job, n: int) -> None:
        tasks.append(asyncio.current_task())
        seen.append(current_job() is job)

    brief.enqueue_many([{"n": n} for n in range(JOBS)])
    drain(app, conn)
    assert len(set(tasks)) < JOBS
    assert seen == [True] * JOBS


def test_a_context_variable_that_a_handler_sets_does_not_reach_the_next_job(
    app: Faultline, conn: Connection
) -> None:
    seen: list[object] = []

    @app.task()
    async def sets(job: Job) -> None:
        seen.append(note.get())
        note.set("left behind")

    sets.enqueue_many([{}] * JOBS)
    drain(app, conn)
    assert seen == [None] * JOBS


def test_context_variables_that_cannot_be_compared_count_as_changed() -> None:
    before, after = contextvars.Context(), contextvars.Context()
    before.run(note.set, Incomparable())
    after.run(note.set, Incomparable())
    assert not _is_same(after, before)
    assert _is_same(before.copy(), before)


def test_a_task_that_suspended_runs_no_other_job(app: Faultline, conn: Connection) -> None:
    tasks = list[Any]()

    @app.task()
    async def suspends(job: Job) -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)

    suspends.enqueue_many([{}] * JOBS)
    drain(app, conn)
    assert len(set(tasks)) == JOBS


def test_the_jobs_behind_one_that_suspends_start_beside_it(
    app: Faultline, conn: Connection
) -> None:
    """All slots are used, whichever of the first jobs suspends."""
    running = 0
    all_run = asyncio.Event()

    @app.task()
    async def brief(job: Job) -> None:
        pass

    @app.task()
    async def meets(job: Job) -> None:
        nonlocal running
        running += 1
        if running == 5:
            all_run.set()
        await asyncio.wait_for(all_run.wait(), LIMIT_SECONDS)

    jobs = [brief.job(), brief.job(), *[meets.job() for _ in range(5)], brief.job()]
    app.enqueue_many(jobs)
    drain(app, conn, len(jobs), concurrency=5)


def test_a_handler_that_cancels_its_own_task_does_not_cancel_the_next_job(
    app: Faultline, conn: Connection
) -> None:
    @app.task()
    async def brief(job: Job) -> None:
        pass

    @app.task()
    async def cancels(job: Job) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @app.task()
    async def suspends(job: Job) -> None:
        await asyncio.sleep(0)

    app.enqueue_many([brief.job(), cancels.job(), suspends.job()] * 10)
    drain(app, conn, 30)
    assert value(conn, "SELECT count(*) FROM faultline.jobs WHERE attempts > 1") == 0


def test_the_event_loop_turns_between_handlers_that_take_long(
    app: Faultline, conn: Connection
) -> None:
    tasks = list[Any]()

    @app.task()
    async def computes(job: Job) -> None:
        tasks.append(asyncio.current_task())
        until = time.monotonic() + 0.003
        while time.monotonic() < until:
            pass

    computes.enqueue_many([{}] * 20)
    drain(app, conn, 20)
    assert len(set(tasks)) == 20


def test_a_failed_job_does_not_stop_the_jobs_behind_it(app: Faultline, conn: Connection) -> None:
    @app.task(max_attempts=1)
    async def fails(job: Job, n: int) -> None:
        if n % 10 == 0:
            raise ValueError("every tenth")

    fails.enqueue_many([{"n": n} for n in range(JOBS)])
    drain(app, conn, JOBS - JOBS // 10)
    failed = "SELECT count(*) FROM faultline.jobs WHERE state = 'failed'"
    assert value(conn, failed) == JOBS // 10


def test_no_job_follows_one_that_suspended_in_its_task(app: Faultline, conn: Connection) -> None:
    """Each suspending job has a name that the worker does not know to suspend."""
    runs: dict[Any, list[str]] = {}  # the names of the jobs that ran in each asyncio task

    @app.task()
    async def brief(job: Job) -> None:
        runs.setdefault(asyncio.current_task(), []).append("brief")

    async def suspends(job: Job) -> None:
        runs.setdefault(asyncio.current_task(), []).append("suspends")
        await asyncio.sleep(0)

    named = [app.task(name=f"suspends{n}")(suspends) for n in range(20)]
    alternating = [job for task in named for job in (task.job(), brief.job())]
    # The first jobs are so short that the worker claims the others ahead of its only slot.
    app.enqueue_many([brief.job() for _ in range(500)] + alternating)
    drain(app, conn, 540, concurrency=1)
    assert all("suspends" not in names[:-1] for names in runs.values())
