"""Turns enqueue requests into the library's own statements, and runs them.

All jobs of a request are enqueued in one transaction, traced and counted like any other enqueue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from faultline.api.api_errors import ApiError, api_error_of, invalid_request
from faultline.api.request_context import RequestContext
from faultline.api.schemas import JobRequest
from faultline.app import Faultline
from faultline.enqueue_options import EnqueueOptions
from faultline.enqueueing import enqueue_many_statement
from faultline.errors import FaultlineError, InvalidInput
from faultline.model import Enqueued, JobSpec
from faultline.payload import MAX_DEPTH, check_idempotency_key, encode_payload
from faultline.task import TaskSettings, job_spec


async def enqueue(
    context: RequestContext, wanted: Sequence[JobSpec], *, trace: str | None
) -> list[Enqueued]:
    """Enqueue all jobs or none; the results are in the order of `wanted`.

    `trace` is the client's trace context.
    """
    statement, span = enqueue_many_statement(wanted, parent=trace)
    with span:
        answers = await context.run(statement)
        span.answered(answers[0] if len(wanted) == 1 else answers)
    return answers


def new_job(job: JobRequest, app: Faultline | None, *, json_depth: int) -> JobSpec:
    """With an application, checks the arguments and uses the settings of its task."""
    settings = TaskSettings()
    unique = None if job.unique is None else job.unique.value()
    if app is not None:
        task = app.find_task(job.task)
        task.check_arguments(encode_payload(job.payload))
        settings = task.settings
        unique = None if unique is None else task.bind_unique(unique)
    _require_depth(job.payload, json_depth)
    options = EnqueueOptions(
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        run_at=job.run_at,
        delay_seconds=job.delay,
        expires_in_seconds=job.expires_in,
        timeout_seconds=job.timeout,
        lease_seconds=job.lease,
        unique=unique,
        tags=job.tags,
    )
    return job_spec(job.task, settings, options, job.payload, job.idempotency_key)


def new_jobs(given: Sequence[Any], app: Faultline | None, *, json_depth: int) -> list[JobSpec]:
    """Each is checked like a single job; an error names the position of the job."""
    wanted: list[JobSpec] = []
    for position, job in enumerate(given):
        try:
            wanted.append(new_job(_validated(job), app, json_depth=json_depth))
        except (FaultlineError, ValidationError, ApiError) as error:
            raise api_error_of(error).about(f"jobs[{position}]") from None
    return wanted


def _validated(job: Any) -> JobRequest:
    try:
        return JobRequest.model_validate(job)
    except ValidationError as error:
        raise invalid_request(error, body=JobRequest) from None


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
