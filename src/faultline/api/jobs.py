"""The endpoints about jobs: enqueue them, look at them, cancel them, run them again."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from faultline.api.document import refusals
from faultline.api.enqueueing import enqueue
from faultline.api.models import (
    BatchAnswer,
    BatchRequest,
    EnqueuedAnswer,
    JobAnswer,
    JobPage,
    JobRequest,
    QueueName,
    ReasonRequest,
    StateAnswer,
    TaskName,
)
from faultline.api.refusals import answer
from faultline.api.route import GuardedRoute, needs
from faultline.api.submission import agreed_key, read_batch, submission
from faultline.api.visit import Access, CurrentVisit
from faultline.errors import InvalidInput, UnknownJob
from faultline.model import Enqueued, JobState
from faultline.payload import MAX_KEY_LENGTH
from faultline.statements import jobs, protocol
from faultline.statements.statement import Statement
from faultline.tracing import from_headers

DEFAULT_PAGE = 50

router = APIRouter(route_class=GuardedRoute, tags=["jobs"])
JobId = Annotated[UUID, Path(description="A job's id.")]


class JobFilter(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: JobState | None = Field(None, description="Only jobs in this state.")
    queue: QueueName | None = Field(None, description="Only jobs of this queue.")
    task: TaskName | None = Field(None, description="Only jobs of this task.")
    limit: int | None = Field(
        None, ge=1, description=f"At most so many; {DEFAULT_PAGE} if not said."
    )
    before: UUID | None = Field(None, description="What the page before gave as `next`.")


@router.post(
    "/jobs",
    summary="Enqueue one job",
    status_code=201,
    response_model=None,
    responses={
        201: {"model": EnqueuedAnswer, "description": "It was queued."},
        200: {"model": EnqueuedAnswer, "description": "The idempotency key had made it before."},
        **refusals(409, 413, 415, 422),
    },
    openapi_extra=needs(
        Access.ENQUEUE,
        parameters=[
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "The same as `idempotency_key` in the body; if both are sent they are equal.",
                "schema": {
                    "type": "string",
                    "maxLength": MAX_KEY_LENGTH,
                    "pattern": "^[!-~]([ -~]*[!-~])?$",
                },
            }
        ],
    ),
)
async def enqueue_job(request: Request, job: JobRequest, visit: CurrentVisit) -> Response:
    """Enqueue one job. With an idempotency key it can be sent again whatever became of the first try:
    there is one job in the end, and its id is the answer."""
    key = agreed_key(job.idempotency_key, request.headers.getlist("idempotency-key"))
    job = job.model_copy(update={"idempotency_key": key})
    wanted = submission(job, visit.service.app, json_depth=visit.settings.json_depth)
    [enqueued] = await enqueue(visit, [wanted], trace=_trace(request))
    headers = {"Location": f"/jobs/{enqueued.job_id}"}
    return answer(_told(enqueued), 200 if enqueued.existing else 201, headers)


@router.post(
    "/jobs/batch",
    summary="Enqueue many jobs, or none",
    status_code=201,
    response_model=None,
    responses={
        201: {"model": BatchAnswer, "description": "At least one was queued."},
        200: {"model": BatchAnswer, "description": "Their keys had made all of them before."},
        **refusals(409, 413, 415, 422),
    },
    openapi_extra=needs(Access.ENQUEUE),
)
async def enqueue_jobs(request: Request, batch: BatchRequest, visit: CurrentVisit) -> Response:
    """Enqueue jobs in one transaction. One that is refused refuses them all."""
    if "idempotency-key" in request.headers:
        raise InvalidInput(
            "a batch has no idempotency key", hint="give each job an idempotency_key of its own"
        )
    most = visit.settings.batch_jobs
    if not 1 <= len(batch.jobs) <= most:
        raise InvalidInput(f"{len(batch.jobs):,} jobs at once; it may be 1 to {most:,}")
    wanted = read_batch(batch.jobs, visit.service.app, json_depth=visit.settings.json_depth)
    enqueued = await enqueue(visit, wanted, trace=_trace(request))
    existing = sum(each.existing for each in enqueued)
    queued = len(enqueued) - existing
    told = {"jobs": list(map(_told, enqueued)), "queued": queued, "existing": existing}
    return answer(told, 201 if queued else 200)


@router.get(
    "/jobs",
    summary="Look at jobs, newest first",
    response_model=None,
    responses={200: {"model": JobPage}, **refusals(422)},
    openapi_extra=needs(Access.READ),
)
async def list_jobs(wanted: Annotated[JobFilter, Query()], visit: CurrentVisit) -> Response:
    """A page of jobs, without their payloads. A filtered page looks at a bounded number of jobs, so it
    may be short, even empty, and still have a `next`."""
    most = visit.settings.page_size
    limit = min(DEFAULT_PAGE, most) if wanted.limit is None else wanted.limit
    if limit > most:
        raise InvalidInput(f"limit is 1 to {most}, not {limit}", hint="go on with the page's next")
    page = await visit.run(
        jobs.job_json_page(
            limit=limit,
            scan=visit.settings.page_scan,
            before=wanted.before,
            state=wanted.state,
            queue=wanted.queue,
            task=wanted.task,
        )
    )
    return answer({"jobs": page.jobs, "next": page.next})


@router.get(
    "/jobs/{id:uuid}",
    summary="Look at one job",
    response_model=None,
    responses={200: {"model": JobAnswer}, **refusals(404, 422)},
    openapi_extra=needs(Access.READ),
)
async def get_job(id: JobId, visit: CurrentVisit) -> Response:  # noqa: A002 - the name in the path
    found = await visit.run(jobs.job_json(id))
    if found is None:
        raise UnknownJob(f"there is no job {id}")
    return answer(found)


@router.post(
    "/jobs/{id:uuid}/cancel",
    summary="Make sure that a job does not run (again)",
    response_model=None,
    responses={200: {"model": StateAnswer}, **refusals(404, 413, 415, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def cancel_job(
    id: JobId,  # noqa: A002
    visit: CurrentVisit,
    why: ReasonRequest | None = None,
) -> Response:
    """A commit that is in flight decides first: then the state is `succeeded`, and nothing was cancelled."""
    return await _moved(id, visit, protocol.cancel(id, why.reason if why else None))


@router.post(
    "/jobs/{id:uuid}/retry",
    summary="Queue a failed job again, with all its attempts",
    response_model=None,
    responses={200: {"model": StateAnswer}, **refusals(404, 409, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def retry_job(id: JobId, visit: CurrentVisit) -> Response:  # noqa: A002
    """A job that waits or runs is left as it is. One that has succeeded is refused: running it again
    would repeat its effect."""
    return await _moved(id, visit, protocol.retry(id))


async def _moved(job_id: UUID, visit: CurrentVisit, verb: Statement[JobState]) -> Response:
    return answer({"job_id": job_id, "state": await visit.operate(verb)})


def _told(enqueued: Enqueued) -> dict[str, Any]:
    return {"job_id": enqueued.job_id, "existing": enqueued.existing}


def _trace(request: Request) -> str | None:
    return from_headers(request.headers.get("traceparent"), request.headers.get("tracestate"))
