"""Endpoints that retry, cancel, delete or edit many jobs by filter, page by page."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Response

from faultline.api.api_errors import json_response
from faultline.api.many_job_schemas import (
    CancelJobsRequest,
    DeleteJobsRequest,
    EditJobsRequest,
    ManyJobsAnswer,
    ManyJobsRequest,
    RetryJobsRequest,
)
from faultline.api.openapi import error_responses
from faultline.api.request_context import Access, CurrentContext
from faultline.api.routing import AuthorizedRoute, needs
from faultline.job_edits import edit_checks, encode_changes
from faultline.job_selection import job_filter
from faultline.statements.many_jobs import JobSweep, ManyAction

SAMPLE = 10

router = APIRouter(route_class=AuthorizedRoute, tags=["jobs"])
_RESPONSES = {200: {"model": ManyJobsAnswer}, **error_responses(413, 415, 422)}


@router.post(
    "/jobs/retry",
    summary="Retry the failed jobs of a filter",
    response_model=None,
    responses=_RESPONSES,
    openapi_extra=needs(Access.OPERATE),
)
async def retry_jobs(many: RetryJobsRequest, context: CurrentContext) -> Response:
    """Queue them again, with all their attempts.

    Repeat the request with `next` as `cursor` until it is null.
    """
    return await _act(many, context, ManyAction.RETRY)


@router.post(
    "/jobs/cancel",
    summary="Cancel the queued and running jobs of a filter",
    response_model=None,
    responses=_RESPONSES,
    openapi_extra=needs(Access.OPERATE),
)
async def cancel_jobs(many: CancelJobsRequest, context: CurrentContext) -> Response:
    """They do not run (again); a commit in progress wins.

    Repeat the request with `next` as `cursor` until it is null.
    """
    return await _act(many, context, ManyAction.CANCEL, many.reason)


@router.post(
    "/jobs/delete",
    summary="Delete the queued and failed jobs of a filter",
    response_model=None,
    responses=_RESPONSES,
    openapi_extra=needs(Access.OPERATE),
)
async def delete_jobs(many: DeleteJobsRequest, context: CurrentContext) -> Response:
    """Their idempotency keys can be used again; running and succeeded jobs stay.

    Repeat the request with `next` as `cursor` until it is null.
    """
    return await _act(many, context, ManyAction.DELETE)


@router.post(
    "/jobs/edit",
    summary="Set fields of the payloads of a filter's queued and failed jobs",
    response_model=None,
    responses=_RESPONSES,
    openapi_extra=needs(Access.OPERATE),
)
async def edit_jobs(many: EditJobsRequest, context: CurrentContext) -> Response:
    """The jobs' timelines keep the former payloads; running and succeeded jobs stay.

    With an application, the request changes nothing if one of its payloads would not fit the task. Repeat
    it with `next` as `cursor` until it is null.
    """
    return await _act(many, context, ManyAction.EDIT, changes=encode_changes(many.changes))


async def _act(
    many: ManyJobsRequest,
    context: CurrentContext,
    action: ManyAction,
    reason: str | None = None,
    *,
    changes: str = "{}",
) -> Response:
    sweep = JobSweep(
        job_filter(**dict(many.filter)),  # the names of the model
        action,
        reason=reason,
        changes=changes,
        page_size=many.limit,
        cursor=many.cursor,
    )
    answer = {"dry_run": many.dry_run, "matched": 0, "sample": [], "next": None}
    if not sweep.is_finished:
        page = await context.run(sweep.page)
        if action is ManyAction.EDIT and (app := context.services.app) is not None:
            for statement in edit_checks(app.tasks, page.ids, changes):
                await context.run(statement)
        if page.ids and not many.dry_run:
            sweep.add(await context.operate(sweep.act(page.ids)))
        sweep.advance(page)
        answer |= {"matched": len(page.ids), "sample": page.ids[:SAMPLE], "next": sweep.cursor}
    return json_response({**asdict(sweep.report), **answer})
