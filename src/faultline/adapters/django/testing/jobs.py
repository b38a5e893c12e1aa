"""What a test has enqueued, and running it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextvars import Context

from asgiref.sync import sync_to_async
from django.db import connections

from faultline.adapters.django.application import DjangoFaultline, app_for, on_event_loop
from faultline.adapters.django.connection import DjangoConnection, wrap
from faultline.adapters.django.testing.case_connection import CaseConnection
from faultline.adapters.django.testing.case_worker import CaseWorker
from faultline.errors import InvalidInput
from faultline.job import Job
from faultline.model import DEFAULT_QUEUE, JobRecord
from faultline.statements import jobs
from faultline.statements.statement import Statement
from faultline.task import Task
from faultline.testing import Attempted, NotIdle, run_until_idle

_DEFAULT_LIMIT = 1_000
_IDS = """
    SELECT id FROM faultline.jobs WHERE coalesce(task = %s, true) AND coalesce(queue = %s, true)
    ORDER BY id"""


def enqueued_jobs(
    task: Task[..., object] | str | None = None,
    *,
    queue: str | None = None,
    using: str | None = None,
) -> list[JobRecord]:
    """The jobs that this test's transaction sees, the oldest first.

    `task` is a task or its name.
    """
    name = task.name if isinstance(task, Task) else task
    app = app_for(using)
    conn = None if on_event_loop() else connections[app.alias]
    statement = Statement(_IDS, (name, queue), lambda rows: [job_id for (job_id,) in rows])
    wanted = app.execute(statement, conn)
    return app.execute(jobs.records_of(wanted), conn)


def run_jobs(
    *,
    using: str | None = None,
    queues: Sequence[str] | None = None,
    raise_errors: bool = True,
    limit: int = _DEFAULT_LIMIT,
) -> list[Attempted]:
    """Run due jobs until none is due; returns their attempts.

    In a TransactionTestCase a real worker runs them. In a TestCase they run in this thread, in the test's
    transaction. If an attempt failed, its exception is raised after all jobs have run.
    """
    app = app_for(using)
    app.import_tasks()
    wrapper = connections[app.alias]
    if DjangoConnection(wrapper).own_blocks:
        raise InvalidInput(
            "run_jobs() inside of transaction.atomic(), where no worker would see the jobs",
            hint="call it after the block",
        )
    if not wrapper.in_atomic_block:
        with _closing_connections(app):
            # Not in the context of an async test, whose thread for the ORM waits here.
            return Context().run(
                run_until_idle, app, queues=queues, raise_errors=raise_errors, limit=limit
            )
    ended: list[Attempted] = []
    chosen = wrap.set(CaseConnection)
    try:
        worker = CaseWorker(app, list(queues or _queues(app)))
        while (claim := worker.claim()) is not None:
            if len(ended) == limit:
                raise NotIdle(f"jobs are still due after {limit:,} attempts")
            ended.append(worker.run(claim))
    finally:
        wrap.reset(chosen)
    if raise_errors:
        for attempted in ended:
            attempted.raise_if_failed()
    return ended


def _queues(app: DjangoFaultline) -> set[str]:
    enqueued = {record.queue for record in enqueued_jobs(using=app.alias)}
    return {DEFAULT_QUEUE, *(task.settings.queue for task in app.tasks.values()), *enqueued}


@contextlib.contextmanager
def _closing_connections(app: DjangoFaultline) -> Iterator[None]:
    """Close all connections of the worker's threads.

    Django cannot drop the test database while one of them is open.
    """

    def in_thread(job: Job) -> Iterator[None]:
        try:
            yield
        finally:
            if not on_event_loop():
                connections.close_all()

    async def on_loop(job: Job) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await sync_to_async(connections.close_all, thread_sensitive=True)()

    app.hooks.attempt[:0] = [in_thread, on_loop]
    try:
        yield
    finally:
        del app.hooks.attempt[:2]
