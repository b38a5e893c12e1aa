"""Endpoints for jobs: enqueue, read, cancel, retry, delete and edit."""

from __future__ import annotations

from itertools import accumulate
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from faultline.api.api_errors import json_response
from faultline.api.api_settings import MAX_WAIT_SECONDS
from faultline.api.enqueueing import agreed_key, enqueue, new_job, new_jobs
from faultline.api.openapi import error_responses
from faultline.api.request_context import Access, CurrentContext
from faultline.api.routing import AuthorizedRoute, needs
from faultline.api.schemas import (
    BatchAnswer,
    BatchRequest,
    DeletedAnswer,
    EnqueuedAnswer,
    ExportPage,
    JobAnswer,
    JobConditions,
    JobPage,
    JobRequest,
    PayloadRequest,
    ReasonRequest,
    StateAnswer,
)
from faultline.errors import InvalidInput, UnknownJob
from faultline.job_selection import job_filter
from faultline.model import Enqueued, JobState
from faultline.payload import MAX_KEY_LENGTH, encode_payload
from faultline.statements import jobs, many_jobs, protocol
from faultline.statements.job_filter import JobFilter
from faultline.statements.statement import Statement
from faultline.tracing import from_headers

DEFAULT_PAGE = 50
EXPORT_BYTES = 4 * 1024 * 1024  # of payloads and results in one page; a larger job has its own

router = APIRouter(route_class=AuthorizedRoute, tags=["jobs"])
JobId = Annotated[UUID, Path(description="A job's id.")]
WaitSeconds = Annotated[
    float,
    Query(
        ge=0,
        le=MAX_WAIT_SECONDS,
        description="How many seconds to wait for the end of a job that has not ended.",
    ),
]


class JobsQuery(JobConditions):
    state: JobState | None = Field(None, description="Only jobs in this state.")
    limit: int | None = Field(
        None, ge=1, description=f"The page's maximum length; default {DEFAULT_PAGE}."
    )
    before: UUID | None = Field(None, description="`next` of the previous page.")


@router.post(
    "/jobs",
    summary="Enqueue one job",
    status_code=201,
    response_model=None,
    responses={
        201: {"model": EnqueuedAnswer, "description": "The job was enqueued."},
        200: {
            "model": EnqueuedAnswer,
            "description": "The idempotency key created it before.",
        },
        **error_responses(409, 413, 415, 422),
    },
    openapi_extra=needs(
        Access.ENQUEUE,
        parameters=[
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "As `idempotency_key` in the body; if both are sent, they must be equal.",
                "schema": {
                    "type": "string",
                    "maxLength": MAX_KEY_LENGTH,
                    "pattern": "^[!-~]([ -~]*[!-~])?$",
                },
            }
        ],
    ),
)
async def enqueue_job(request: Request, job: JobRequest, context: CurrentContext) -> Response:
    """With an idempotency key, every repetition of the request returns the same job."""
    key = agreed_key(job.idempotency_key, request.headers.getlist("idempotency-key"))
    job = job.model_copy(update={"idempotency_key": key})
    wanted = new_job(job, context.services.app, json_depth=context.settings.json_depth)
    [enqueued] = await enqueue(context, [wanted], trace=_trace(request))
    headers = {"Location": f"/jobs/{enqueued.job_id}"}
    return json_response(_document(enqueued), 200 if enqueued.existing else 201, headers)


@router.post(
    "/jobs/batch",
    summary="Enqueue many jobs in one transaction",
    status_code=201,
    response_model=None,
    responses={
        201: {"model": BatchAnswer, "description": "At least one job was enqueued."},
        200: {
            "model": BatchAnswer,
            "description": "The idempotency keys created all of them before.",
        },
        **error_responses(409, 413, 415, 422),
    },
    openapi_extra=needs(Access.ENQUEUE),
)
async def enqueue_jobs(request: Request, batch: BatchRequest, context: CurrentContext) -> Response:
    """If one job is refused, none is enqueued."""
    if "idempotency-key" in request.headers:
        raise InvalidInput(
            "a batch has no idempotency key", hint="give each job an idempotency_key of its own"
        )
    most = context.settings.batch_jobs
    if not 1 <= len(batch.jobs) <= most:
        raise InvalidInput(f"a batch has 1 to {most:,} jobs, not {len(batch.jobs):,}")
    wanted = new_jobs(batch.jobs, context.services.app, json_depth=context.settings.json_depth)
    enqueued = await enqueue(context, wanted, trace=_trace(request))
    existing = sum(each.existing for each in enqueued)
    queued = len(enqueued) - existing
    document = {"jobs": list(map(_document, enqueued)), "queued": queued, "existing": existing}
    return json_response(document, 201 if queued else 200)


@router.get(
    "/jobs",
    summary="List jobs, newest first",
    response_model=None,
    responses={200: {"model": JobPage}, **error_responses(422)},
    openapi_extra=needs(Access.READ),
)
async def list_jobs(wanted: Annotated[JobsQuery, Query()], context: CurrentContext) -> Response:
    """A page of jobs without payloads.

    A filtered page examines a bounded number of jobs, so it may be short, even empty, and still have a
    `next`.
    """
    page = await _page(wanted, context)
    return json_response({"jobs": page.jobs, "next": page.next})


@router.get(
    "/jobs/export",
    summary="Read many jobs with payloads and results",
    response_model=None,
    responses={200: {"model": ExportPage}, **error_responses(422)},
    openapi_extra=needs(Access.READ),
)
async def export_jobs(wanted: Annotated[JobsQuery, Query()], context: CurrentContext) -> Response:
    """The pages of the list, newest first; numbers exactly as they are stored.

    A page ends early when its payloads and results reach 4 MiB.
    """
    page = await _page(wanted, context)
    ids = [job["id"] for job in page.jobs]
    sizes = await context.run(many_jobs.sizes_of(ids))
    totals = accumulate(sizes.get(job_id, 0) for job_id in ids)
    fitting = max(1, sum(total <= EXPORT_BYTES for total in totals))
    found = await context.run(jobs.documents_of(ids[:fitting]))
    return json_response(
        {"jobs": found, "next": ids[fitting - 1] if fitting < len(ids) else page.next}
    )


async def _page(wanted: JobsQuery, context: CurrentContext) -> jobs.JobJsonPage:
    most = context.settings.page_size
    limit = min(DEFAULT_PAGE, most) if wanted.limit is None else wanted.limit
    if limit > most:
        raise InvalidInput(
            f"limit is 1 to {most}, not {limit}", hint="continue with the page's next"
        )
    return await context.run(
        jobs.job_json_page(
            _filter(wanted),
            limit=limit,
            scan=context.settings.page_scan,
            before=wanted.before,
        )
    )


@router.get(
    "/jobs/{id:uuid}",
    summary="Read one job",
    response_model=None,
    responses={200: {"model": JobAnswer}, **error_responses(404, 422)},
    openapi_extra=needs(Access.READ),
)
async def get_job(
    id: JobId,  # noqa: A002 - the name in the path
    context: CurrentContext,
    wait: WaitSeconds = 0,
) -> Response:
    """With `wait`, the response is sent when the job has ended or the time has passed.

    It may be sent earlier, for example when many requests wait: check `state`, and repeat the request.
    """
    found = await context.run(jobs.job_json(id))
    if found is not None and wait > 0 and found["state"] in (JobState.QUEUED, JobState.RUNNING):
        await context.wait_for_end(id, wait)
        found = await context.run(jobs.job_json(id))
    if found is None:
        raise UnknownJob(f"there is no job {id}")
    return json_response(found)


@router.post(
    "/jobs/{id:uuid}/cancel",
    summary="Cancel a job, so that it does not run (again)",
    response_model=None,
    responses={200: {"model": StateAnswer}, **error_responses(404, 413, 415, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def cancel_job(
    id: JobId,  # noqa: A002
    context: CurrentContext,
    why: ReasonRequest | None = None,
) -> Response:
    """A commit in progress wins.

    The state is then `succeeded`, and nothing was cancelled.
    """
    return await _operate(id, context, protocol.cancel(id, why.reason if why else None))


@router.post(
    "/jobs/{id:uuid}/retry",
    summary="Retry a failed job, with all its attempts",
    response_model=None,
    responses={200: {"model": StateAnswer}, **error_responses(404, 409, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def retry_job(id: JobId, context: CurrentContext) -> Response:  # noqa: A002
    """A queued or running job stays as it is.

    A succeeded job is refused: its effect would happen twice.
    """
    return await _operate(id, context, protocol.retry(id))


@router.delete(
    "/jobs/{id:uuid}",
    summary="Delete a queued or failed job",
    response_model=None,
    responses={200: {"model": DeletedAnswer}, **error_responses(404, 409, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def delete_job(id: JobId, context: CurrentContext) -> Response:  # noqa: A002
    """Its idempotency key can be used again.

    A running or succeeded job is refused.
    """
    return await _operate(id, context, protocol.delete(id))


@router.patch(
    "/jobs/{id:uuid}",
    summary="Replace the payload of a queued or failed job",
    response_model=None,
    responses={200: {"model": StateAnswer}, **error_responses(404, 409, 413, 415, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def edit_job(id: JobId, edited: PayloadRequest, context: CurrentContext) -> Response:  # noqa: A002
    """The job's timeline keeps the former payload.

    A running or succeeded job is refused. With an application, arguments that do not fit the task are too.
    """
    if (app := context.services.app) is not None:
        job = await context.run(jobs.get_job(id))
        task = None if job is None else app.tasks.get(job.task)
        if task is not None:
            task.check_arguments(encode_payload(edited.payload))
    return await _operate(id, context, protocol.edit_payload(id, edited.payload))


def _filter(wanted: JobsQuery) -> JobFilter:
    given = wanted.model_dump(exclude={"limit", "before"})
    return job_filter(**given)  # the names of the model


async def _operate(job_id: UUID, context: CurrentContext, verb: Statement[JobState]) -> Response:
    return json_response({"job_id": job_id, "state": await context.operate(verb)})


def _document(enqueued: Enqueued) -> dict[str, Any]:
    return {
        "job_id": enqueued.job_id,
        "existing": enqueued.existing,
        "outcome": enqueued.outcome,
    }


def _trace(request: Request) -> str | None:
    return from_headers(request.headers.get("traceparent"), request.headers.get("tracestate"))
