"""The outcomes of an inline worker's attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from faultline.errors import FaultlineError
from faultline.job import Job
from faultline.postgres.sessions import Connection
from faultline.task import Task


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    RETRYING = "retrying"  # failed, and queued again for later
    FAILED = "failed"  # failed, and will not run again
    STALE = "stale"  # PostgreSQL refused the commit
    RELEASED = "released"
    CANCELLED = "cancelled"
    LOST = "lost"  # ended without a record, because its lease was lost


class HandlerFailed(FaultlineError):
    """An attempt failed without an exception here; for example, in a child process."""

    code = "handler_failed"


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

    def raise_if_failed(self) -> None:
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

    def wrap(self, task: Task[Any, Any]) -> Callable[..., Any]:
        def plain(job: Job, *args: Any, **kwargs: Any) -> Any:
            self._started[job.id, job.token] = job
            try:
                return task.handler(job, *args, **kwargs)
            except BaseException as error:
                self._raised[job.id, job.token] = error
                raise

        async def awaited(job: Job, *args: Any, **kwargs: Any) -> Any:
            self._started[job.id, job.token] = job
            try:
                return await task.handler(job, *args, **kwargs)
            except BaseException as error:
                self._raised[job.id, job.token] = error
                raise

        return awaited if task.is_async else plain

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
        return Attempted(job_id, task, number, token, Outcome(outcome), error, exception, result)


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
                    WHEN outcome IN ('released', 'cancelled') THEN outcome ELSE 'lost' END,
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
