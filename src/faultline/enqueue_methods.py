"""The methods of an application that enqueue jobs, inside its hooks."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from faultline.enqueueing import (
    enqueue_many_statement,
    enqueue_statement,
    require_job,
    require_jobs,
)
from faultline.hooks import HookRegistry
from faultline.model import Enqueued, JobSpec, WaitsForResults, bind_all
from faultline.statements.statement import Statement
from faultline.user_connections import AnyConnection

T = TypeVar("T")


class EnqueueMethods(HookRegistry):
    """A base class of `Faultline`, which has `execute` and `execute_async`."""

    if TYPE_CHECKING:

        def execute(self, statement: Statement[T], conn: AnyConnection | None = None) -> T: ...
        def execute_async(
            self, statement: Statement[T], conn: AnyConnection | None = None
        ) -> Coroutine[Any, Any, T]: ...

    def enqueue(self, job: JobSpec, *, conn: AnyConnection | None = None) -> Enqueued:
        """Enqueue a job that `task.job(…)` made; with `conn`, in your transaction."""
        if not self.hooks.enqueue:
            return self._enqueue(job, conn)
        require_job(job)
        return self.hooks.run_enqueue([job], partial(self._enqueue, job, conn))

    async def enqueue_async(self, job: JobSpec, *, conn: AnyConnection | None = None) -> Enqueued:
        if not self.hooks.enqueue:
            return await self._enqueue_async(job, conn)
        require_job(job)
        enqueue = partial(self._enqueue_async, job, conn)
        return await self.hooks.run_enqueue_async([job], enqueue)

    def enqueue_many(
        self, jobs: Iterable[JobSpec], *, conn: AnyConnection | None = None
    ) -> list[Enqueued]:
        """Enqueue jobs of any tasks in one round trip: all of them or none."""
        if not self.hooks.enqueue:
            return self._enqueue_many(jobs, conn)
        wanted = require_jobs(jobs)
        return self.hooks.run_enqueue(wanted, partial(self._enqueue_many, wanted, conn))

    async def enqueue_many_async(
        self, jobs: Iterable[JobSpec], *, conn: AnyConnection | None = None
    ) -> list[Enqueued]:
        if not self.hooks.enqueue:
            return await self._enqueue_many_async(jobs, conn)
        wanted = require_jobs(jobs)
        enqueue = partial(self._enqueue_many_async, wanted, conn)
        return await self.hooks.run_enqueue_async(wanted, enqueue)

    def _enqueue(self, job: JobSpec, conn: AnyConnection | None) -> Enqueued:
        statement, span = enqueue_statement(job)
        with span:
            return self._bound(span.answered(self.execute(statement, conn)))

    async def _enqueue_async(self, job: JobSpec, conn: AnyConnection | None) -> Enqueued:
        statement, span = enqueue_statement(job)
        with span:
            return self._bound(span.answered(await self.execute_async(statement, conn)))

    def _enqueue_many(self, jobs: Iterable[JobSpec], conn: AnyConnection | None) -> list[Enqueued]:
        statement, span = enqueue_many_statement(jobs)
        with span:
            return bind_all(
                span.answered(self.execute(statement, conn)), cast(WaitsForResults, self)
            )

    async def _enqueue_many_async(
        self, jobs: Iterable[JobSpec], conn: AnyConnection | None
    ) -> list[Enqueued]:
        statement, span = enqueue_many_statement(jobs)
        with span:
            return bind_all(
                span.answered(await self.execute_async(statement, conn)),
                cast(WaitsForResults, self),
            )

    def _bound(self, enqueued: Enqueued) -> Enqueued:
        """Let it wait for its result through this application."""
        return enqueued.bind(cast(WaitsForResults, self))
