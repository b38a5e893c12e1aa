"""Turns enqueue requests into the library's own statements, and runs them.

All jobs of a request are enqueued in one transaction, traced and counted like any other enqueue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from faultline.api.api_errors import ApiError, api_error_of
from faultline.api.request_context import RequestContext
from faultline.api.schemas import JobRequest
from faultline.app import Faultline
from faultline.errors import FaultlineError, InvalidInput
from faultline.metrics import count_enqueued
from faultline.model import Enqueued
from faultline.payload import MAX_DEPTH, check_idempotency_key, encode_payload
from faultline.statements import protocol
from faultline.statements.statement import Statement
from faultline.task import TaskOptions
from faultline.tracing import tracing

# Jobs that are equal in all of this are enqueued by one statement.
Options = tuple[str, str, int, int, datetime | None]


@dataclass(frozen=True, slots=True)
class NewJob:
    """A validated job of a request, with the defaults of its task."""

    task: str
    payload: dict[str, Any]
    queue: str
    priority: int
    max_attempts: int
    run_at: datetime | None
    idempotency_key: str | None

    @property
    def options(self) -> Options:
        return (self.task, self.queue, self.priority, self.max_attempts, self.run_at)


async def enqueue(
    context: RequestContext, wanted: Sequence[NewJob], *, trace: str | None
) -> list[Enqueued]:
    """Enqueue all jobs or none; the results are in the order of `wanted`.

    `trace` is the client's trace context.
    """
    groups = group_by_options(wanted)
    with contextlib.ExitStack() as spans:
        traced = [
            spans.enter_context(
                tracing.enqueueing(group.task, group.queue, len(group.jobs), parent=trace)
            )
            for group in groups
        ]
        statements = [
            group.statement(span.carrier) for group, span in zip(groups, traced, strict=True)
        ]
        if len(statements) == 1:
            answers = [await context.run(statements[0])]
        else:
            answers = await context.run_together(statements)
        for span, answer in zip(traced, answers, strict=True):
            span.answered(answer[0] if len(wanted) == 1 else answer)
    by_position: dict[int, Enqueued] = {}
    for group, answer in zip(groups, answers, strict=True):
        count_enqueued(group.queue, answer)
        by_position.update(zip(group.positions, answer, strict=True))
    return [by_position[position] for position in range(len(wanted))]


def new_job(job: JobRequest, app: Faultline | None, *, json_depth: int) -> NewJob:
    """With an application, checks the arguments and uses the options of its task."""
    options = TaskOptions()
    if app is not None:
        task = app.find_task(job.task)
        task.arguments(encode_payload(job.payload))
        options = task.options
    _require_depth(job.payload, json_depth)
    return NewJob(
        task=job.task,
        payload=job.payload,
        queue=options.queue if job.queue is None else job.queue,
        priority=options.priority if job.priority is None else job.priority,
        max_attempts=options.max_attempts if job.max_attempts is None else job.max_attempts,
        run_at=job.run_at,
        idempotency_key=job.idempotency_key,
    )


def new_jobs(given: Sequence[Any], app: Faultline | None, *, json_depth: int) -> list[NewJob]:
    """Each is checked like a single job; an error names the position of the job."""
    wanted: list[NewJob] = []
    for position, job in enumerate(given):
        try:
            wanted.append(new_job(JobRequest.model_validate(job), app, json_depth=json_depth))
        except (FaultlineError, ValidationError, ApiError) as error:
            raise api_error_of(error).about(f"jobs[{position}]") from None
    return wanted


def _require_depth(payload: Any, limit: int) -> None:
    """For a limit below the library's MAX_DEPTH, which the library checks itself."""
    if limit >= MAX_DEPTH:
        return
    level, depth = [payload], 1
    while level := [
        item
        for holder in level
        for item in (holder.values() if isinstance(holder, dict) else holder)
        if isinstance(item, dict | list)
    ]:
        depth += 1
        if depth > limit:
            message = f"payload is nested more than {limit} levels deep"
            raise ApiError(422, "invalid_input", message)


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs with equal options, and their positions in the request."""

    jobs: list[NewJob]
    positions: list[int]

    @property
    def queue(self) -> str:
        return self.jobs[0].queue

    @property
    def task(self) -> str:
        return self.jobs[0].task

    def statement(self, trace_context: str | None) -> Statement[list[Enqueued]]:
        keys = [job.idempotency_key for job in self.jobs]
        first = self.jobs[0]
        return protocol.enqueue_many(
            first.task,
            [job.payload for job in self.jobs],
            queue=first.queue,
            priority=first.priority,
            max_attempts=first.max_attempts,
            run_at=first.run_at,
            idempotency_keys=keys if any(key is not None for key in keys) else None,
            trace_context=trace_context,
        )


def group_by_options(wanted: Sequence[NewJob]) -> list[JobGroup]:
    """Groups in the order of their options, so that batches lock rows in one order."""

    def options(position: int) -> tuple[str, ...]:
        return tuple(map(str, wanted[position].options))

    ordered = sorted(range(len(wanted)), key=options)
    groups = [list(positions) for _, positions in groupby(ordered, key=options)]
    return [JobGroup([wanted[each] for each in positions], positions) for positions in groups]


def agreed_key(in_body: str | None, in_headers: Sequence[str]) -> str | None:
    """The idempotency key of body and headers; different keys are refused."""
    given = {check_idempotency_key(_text(header)) for header in in_headers}
    if in_body is not None:
        given.add(in_body)
    if len(given) > 1:
        raise ApiError(
            409,
            "idempotency_keys_differ",
            "two different idempotency keys were sent",
            "send one of them: in the body, or as the Idempotency-Key header",
        )
    return given.pop() if given else None


def _text(header: str) -> str:
    """The server decodes headers as Latin-1; keys are UTF-8, like the body."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        raise InvalidInput("the Idempotency-Key header is not UTF-8") from None
