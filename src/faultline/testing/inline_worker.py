"""Runs the real worker inside a test until no job is due."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from faultline.app import Faultline
from faultline.batch import Batch, BatchJob
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.job import Job
from faultline.model import DEFAULT_QUEUE, Claim
from faultline.postgres.sessions import AsyncConnection, Connection, connect, open_session_async
from faultline.results import ADVICE
from faultline.retry_control import Retry, Snooze, too_late
from faultline.task import Task
from faultline.testing.application import close_pool_of_running_loop, instrumented_copy
from faultline.workers import Worker

T = TypeVar("T")

_POLL_SECONDS = 0.005
_DEFAULT_TIMEOUT_SECONDS = 60.0
_DEFAULT_LIMIT = 1_000
_APPLICATION = "faultline testing"


class NotIdle(FaultlineError):
    """Jobs were still due or running when the limit was reached."""

    code = "not_idle"


def run_one(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> Attempted | None:
    """Run one due job as a worker would; return None if no job is due."""
    return in_thread(
        lambda: run_one_async(
            app, queues=queues, raise_errors=raise_errors, timeout_seconds=timeout_seconds
        ),
        app,
    )


async def run_one_async(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> Attempted | None:
    """Run one due job on the caller's event loop, which the handler then shares."""
    ended = await _run(app, queues, max_jobs=1, timeout_seconds=timeout_seconds)
    return _raise_failures(ended, raise_errors=raise_errors)[0] if ended else None


def run_until_idle(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    limit: int = _DEFAULT_LIMIT,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> list[Attempted]:
    """Run due jobs one after another until none is due, including newly enqueued ones.

    Scheduled jobs and retries that are not due yet do not run: see `advance`. If an attempt failed, its
    handler's exception is raised after all jobs have run, unless `raise_errors` is false.
    """
    return in_thread(
        lambda: run_until_idle_async(
            app,
            queues=queues,
            raise_errors=raise_errors,
            limit=limit,
            timeout_seconds=timeout_seconds,
        ),
        app,
    )


async def run_until_idle_async(
    app: Faultline,
    *,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    limit: int = _DEFAULT_LIMIT,
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
) -> list[Attempted]:
    ended = await _run(app, queues, max_jobs=limit + 1, timeout_seconds=timeout_seconds)
    if len(ended) > limit:
        raise NotIdle(
            f"jobs are still due after {limit:,} attempts; check whether a job enqueues itself"
        )
    return _raise_failures(ended, raise_errors=raise_errors)


def _raise_failures(ended: list[Attempted], *, raise_errors: bool) -> list[Attempted]:
    if raise_errors:
        for attempted in ended:
            attempted.raise_if_failed()
    return ended


def in_thread(work: Callable[[], Coroutine[Any, Any, T]], app: Faultline) -> T:
    """Run a coroutine in a new thread: an async test already runs a loop in this one."""
    result: list[T] = []
    failure: list[BaseException] = []

    async def main() -> T:
        try:
            return await work()
        finally:
            await close_pool_of_running_loop(app)  # opened by a handler that used enqueue_async

    def run() -> None:
        try:
            result.append(asyncio.run(main()))
        except BaseException as error:
            failure.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="faultline-inline-worker")
    thread.start()
    thread.join()  # `work` has its own time limit
    if failure:
        raise failure[0]
    return result[0]


async def _run(
    app: Faultline, queues: Sequence[str] | None, *, max_jobs: int, timeout_seconds: float
) -> list[Attempted]:
    recorder = AttemptRecorder()
    copy = instrumented_copy(app, recorder.wrap)
    copy.on_result_discarded = recorder.note_discarded
    settings = WorkerSettings(
        queues=tuple(queues or all_queues(app)),
        concurrency=1,
        claim_ahead=0,
        poll_seconds=0.05,
        max_jobs=max_jobs,
        warns_of_weak_durability=False,
    )
    await work_until_idle(copy, settings, timeout_seconds=timeout_seconds)
    with connect(app.database_url, application_name=_APPLICATION) as conn:
        return recorder.read(conn, settings.worker_id)


def all_queues(app: Faultline) -> list[str]:
    """Return the queues of the application's tasks and of all stored jobs."""
    app.import_tasks()
    named = {DEFAULT_QUEUE, *(task.settings.queue for task in app.tasks.values())}
    with connect(app.database_url, application_name=_APPLICATION) as conn:
        rows = conn.execute("SELECT DISTINCT queue FROM faultline.jobs").fetchall()
    return sorted(named | {queue for (queue,) in rows})


async def work_until_idle(
    app: Faultline, settings: WorkerSettings, *, timeout_seconds: float
) -> None:
    """Run a worker on this event loop until its queues have no due and no running job."""
    deadline = time.monotonic() + timeout_seconds
    timed_out = False

    async def stop_when_idle() -> None:
        nonlocal timed_out
        conn, _ = await open_session_async(app.database_url, application_name=_APPLICATION)
        async with conn:
            while await _is_busy(conn, settings):
                if time.monotonic() > deadline:
                    timed_out = True
                    worker.stop()  # the second stop() ends it at once
                    break
                await asyncio.sleep(_POLL_SECONDS)
        worker.stop()

    worker = Worker(app, settings, companions=[stop_when_idle])
    await worker.run()
    if timed_out:
        raise NotIdle(
            f"jobs are still due or running after {timeout_seconds:g} s",
            hint="raise timeout_seconds if the jobs need longer",
        )


async def _is_busy(conn: AsyncConnection, settings: WorkerSettings) -> bool:
    cursor = await conn.execute(
        "SELECT EXISTS (SELECT FROM faultline.jobs WHERE queue = ANY (%(queues)s) AND"
        "  (state = 'queued' AND next_run_at <= clock_timestamp()"
        "   OR state = 'running' AND (lease_owner = %(worker)s"
        "                             OR lease_expires_at <= clock_timestamp())))",
        {"queues": list(settings.queues or ()), "worker": settings.worker_id},
    )
    row = await cursor.fetchone()
    return bool(row and row[0])


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    RETRYING = "retrying"  # failed, and queued again for later
    FAILED = "failed"  # failed, and will not run again
    STALE = "stale"  # PostgreSQL refused the commit
    RELEASED = "released"
    SNOOZED = "snoozed"  # by its handler, and queued again for later
    CANCELLED = "cancelled"
    LOST = "lost"  # ended without a record, because its lease was lost


class HandlerFailed(FaultlineError):
    """An attempt failed without an exception here; for example, in a child process."""

    code = "handler_failed"


class ResultDiscarded(FaultlineError):
    """A handler returned a value, or set job.result, after it had committed the job."""

    code = "result_discarded"


@dataclass(frozen=True, slots=True)
class Attempted:
    """One attempt at one job, and how it ended."""

    job_id: UUID
    task: str
    attempt: int  # 1 for the first
    token: int
    outcome: Outcome
    error: str | None  # as `faultline jobs show` prints it
    exception: BaseException | None  # what the handler raised
    result: Any  # as stored in the ledger
    discarded: str | None = None  # describes a value of the handler that was not stored

    def raise_if_failed(self) -> None:
        if self.discarded is not None:
            raise ResultDiscarded(
                f"{self.discarded}, which is not stored as the result of {self.task}"
                f" (job {self.job_id})",
                hint=ADVICE,
            )
        if self.outcome is Outcome.SUCCEEDED and isinstance(self.exception, Snooze | Retry):
            raise too_late(self.exception) from self.exception
        if self.outcome not in (Outcome.RETRYING, Outcome.FAILED, Outcome.STALE):
            return
        what = f"attempt {self.attempt} of {self.task} ended as {self.outcome} (job {self.job_id})"
        if self.exception is None:
            raise HandlerFailed(f"{what}: {self.error or 'no error was recorded'}")
        self.exception.add_note(what)
        raise self.exception


class AttemptRecorder:
    """Records when handlers start and what they raise; the database has the rest."""

    def __init__(self) -> None:
        self._started: dict[tuple[UUID, int], Job] = {}
        self._raised: dict[tuple[UUID, int], BaseException] = {}
        self._discarded: dict[tuple[UUID, int], str] = {}

    def note_discarded(self, claim: Claim, what: str) -> None:
        self._discarded[claim.job_id, claim.fencing_token] = what

    def wrap(self, task: Task[Any, Any]) -> Callable[..., Any]:
        handler: Callable[..., Any] = task.handler

        def plain(subject: Job | Batch[Any], /, *args: Any, **kwargs: Any) -> Any:
            with self._recording(subject):
                return handler(subject, *args, **kwargs)

        async def awaited(subject: Job | Batch[Any], /, *args: Any, **kwargs: Any) -> Any:
            with self._recording(subject):
                return await handler(subject, *args, **kwargs)

        return awaited if task.is_async else plain

    @contextlib.contextmanager
    def _recording(self, subject: Job | Batch[Any]) -> Iterator[None]:
        """Around one run of a handler, which may be the second one of its attempt."""
        jobs = subject.jobs if isinstance(subject, Batch) else (subject,)
        for job in jobs:
            self._started[job.id, job.token] = job
            self._raised.pop((job.id, job.token), None)
        try:
            yield
        except BaseException as error:
            for job in jobs:
                self._raised[job.id, job.token] = error
            raise
        finally:
            for job in jobs:
                if isinstance(job, BatchJob) and job.failure is not None:
                    self._raised[job.id, job.token] = job.failure

    def read(self, conn: Connection, worker_id: str) -> list[Attempted]:
        """Return the worker's attempts in the order in which they ended."""
        found = [self._attempted(row) for row in conn.execute(_ENDED, {"worker": worker_id})]
        recorded = {(attempted.job_id, attempted.token) for attempted in found}
        for key, job in self._started.items():
            if key not in recorded:
                row = (*key, job.task, job.attempt, Outcome.LOST, None, None)
                found.append(self._attempted(row))
        return found

    def _attempted(self, row: tuple[Any, ...]) -> Attempted:
        job_id, token, task, attempt, outcome, error, result = row
        exception = self._raised.get((job_id, token))
        started = self._started.get((job_id, token))
        number = started.attempt if started is not None else attempt
        return Attempted(
            job_id,
            task,
            number,
            token,
            Outcome(outcome),
            error,
            exception,
            result,
            self._discarded.get((job_id, token)),
        )


# A refused attempt may also have released its expired lease: it counts as stale, by its lower rank.
_ENDED = """
    WITH ended AS (
        SELECT job_id, fencing_token AS token, 1 AS rank, 'succeeded' AS outcome,
               NULL AS error, result, NULL::integer AS attempt, committed_at AS ended_at
        FROM faultline.ledger WHERE worker = %(worker)s
        UNION ALL
        SELECT job_id, stale_token, 2, 'stale', reason, NULL, NULL, rejected_at
        FROM faultline.rejections WHERE worker = %(worker)s
        UNION ALL
        SELECT job_id, fencing_token, 3,
               CASE WHEN outcome = 'failed' THEN 'retrying'
                    WHEN outcome IN ('released', 'snoozed', 'cancelled') THEN outcome ELSE 'lost' END,
               error, NULL, attempt, ended_at
        FROM faultline.attempts_log WHERE worker = %(worker)s),
    first AS (
        SELECT DISTINCT ON (job_id, token) * FROM ended ORDER BY job_id, token, rank)
    SELECT f.job_id, f.token, j.task, coalesce(f.attempt, j.attempts),
           CASE WHEN f.outcome = 'retrying' AND j.state = 'failed' AND j.fencing_token = f.token
                THEN 'failed' ELSE f.outcome END,
           f.error, f.result
    FROM first AS f JOIN faultline.jobs AS j ON j.id = f.job_id
    ORDER BY f.ended_at, f.token
"""
