"""Turns jobs to enqueue into statements, traced and counted."""

from __future__ import annotations

from collections.abc import Iterable

from faultline.errors import InvalidInput
from faultline.metrics import counted, counted_by_queue
from faultline.model import Enqueued, EqualJobs, JobSpec
from faultline.statements import protocol
from faultline.statements.statement import Statement
from faultline.tracing import Enqueueing, tracing
from faultline.wording import with_article

MAX_BATCH = 10_000


def enqueue_statement(job: JobSpec) -> tuple[Statement[Enqueued], Enqueueing]:
    require_job(job)
    span = tracing.enqueueing(job.task, job.queue)
    return counted(protocol.enqueue_job(job, trace_context=span.carrier), job.queue), span


def enqueue_many_statement(
    jobs: Iterable[JobSpec], *, parent: str | None = None
) -> tuple[Statement[list[Enqueued]], Enqueueing]:
    """One statement for all jobs; `parent` is the trace context of an outside caller."""
    wanted = jobs if isinstance(jobs, EqualJobs) else require_jobs(jobs)
    if len(wanted) > MAX_BATCH:
        raise InvalidInput(
            f"{len(wanted):,} jobs are too many for one call", hint=f"the limit is {MAX_BATCH:,}"
        )
    if isinstance(wanted, EqualJobs):
        tasks, queues = (
            {job.task for job in wanted[:1]},
            [job.queue for job in wanted[:1]] * len(wanted),
        )
    else:
        tasks, queues = {job.task for job in wanted}, [job.queue for job in wanted]
    span = tracing.enqueueing(_one_of(tasks), _one_of(set(queues)), len(wanted), parent=parent)
    statement = protocol.enqueue_specs(wanted, trace_context=span.carrier)
    return counted_by_queue(statement, queues), span


def _one_of(names: Iterable[str]) -> str:
    """The only name, or a text that says that there are several."""
    found = list(names)
    return found[0] if len(found) == 1 else "several"


def require_jobs(given: object) -> list[JobSpec]:
    """Refuse what is not a list, or another iterable, of jobs to enqueue."""
    if isinstance(given, JobSpec) or not isinstance(given, Iterable):
        found = "one job" if isinstance(given, JobSpec) else with_article(type(given).__name__)
        raise InvalidInput(
            f"enqueue_many takes a list of jobs, not {found}",
            hint="app.enqueue_many([charge.job(invoice=42)]); app.enqueue takes one job",
        )
    jobs = list(given)
    for job in jobs:
        if type(job) is not JobSpec:
            require_job(job)
    return jobs


def require_job(given: JobSpec) -> JobSpec:
    """Refuse what is not a job to enqueue."""
    if not isinstance(given, JobSpec):
        raise InvalidInput(
            f"a job to enqueue is what task.job(…) returns, not {with_article(type(given).__name__)}",
            hint="app.enqueue_many([charge.job(invoice=42)])",
        )
    return given
