"""Reports jobs that died with their worker, or that expired; calls on_dead."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from uuid import UUID

from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.handler_errors import summary
from faultline.hooks import Hooks
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.statements import jobs
from faultline.statements.protocol import ReconciledJob


class DeadJobs:
    """Runs the functions beside the reconciler, which must not wait for user code.

    It reconciles the jobs of every application, and calls the functions of its own for `tasks` only.
    """

    def __init__(self, hooks: Hooks | None, tasks: Container[str]) -> None:
        self._hooks = hooks
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()

    async def report(self, session: ReconnectingSession, dead: Sequence[ReconciledJob]) -> None:
        """Log each job, and call the application's functions for dead jobs."""
        if not dead:
            return
        tasks = await _tasks_of(session, [job.job_id for job in dead])
        for job in dead:
            emit(
                Event.JOB_DEAD,
                job_id=str(job.job_id),
                token=job.fencing_token,
                task=tasks.get(job.job_id),
                attempt=job.attempt,
                reason="poison",
            )
            if self._hooks is None or not self._hooks.dead:
                continue
            if tasks.get(job.job_id) in self._tasks:
                await self._call_hooks(session, self._hooks, job)

    async def report_expired(self, session: ReconnectingSession, job_ids: Sequence[UUID]) -> None:
        """Log jobs that expired before they started; no function is called for these."""
        tasks = await _tasks_of(session, job_ids) if job_ids else {}
        for job_id in job_ids:
            emit(Event.JOB_DEAD, job_id=str(job_id), task=tasks.get(job_id), reason="expired")

    async def _call_hooks(
        self, session: ReconnectingSession, hooks: Hooks, job: ReconciledJob
    ) -> None:
        try:
            record = await session.run(jobs.get_job(job.job_id))
        except (FaultlineError, DriverError) as error:
            reason = "a dead job could not be read, so that on_dead was not called"
            emit(Event.DEGRADED, reason=reason, job_id=str(job.job_id), error=summary(error))
            return
        if record is not None:
            task = asyncio.create_task(hooks.died(record, None))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def close(self) -> None:
        """Cancel functions that are still running."""
        for task in self._running:
            task.cancel()


async def _tasks_of(session: ReconnectingSession, job_ids: Sequence[UUID]) -> dict[UUID, str]:
    try:
        return await session.run(jobs.tasks_of(job_ids))
    except (FaultlineError, DriverError):  # the next statement of the reconciler reports it
        return {}
