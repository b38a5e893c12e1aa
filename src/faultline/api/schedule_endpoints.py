"""Endpoints for schedules: list, show, add, pause, resume, run and remove."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from faultline.api.api_errors import ApiError, json_response
from faultline.api.openapi import error_responses
from faultline.api.request_context import Access, CurrentContext
from faultline.api.routing import AuthorizedRoute, needs
from faultline.api.schedule_schemas import (
    AddedScheduleAnswer,
    RemovedScheduleAnswer,
    ScheduleAnswer,
    ScheduleName,
    SchedulePauseAnswer,
    ScheduleRequest,
    ScheduleRunAnswer,
    SchedulesAnswer,
)
from faultline.api.schemas import ReasonRequest
from faultline.app import Faultline
from faultline.enqueue_options import EnqueueOptions
from faultline.errors import UnknownSchedule
from faultline.payload import encode_payload
from faultline.schedule_view import document, full_document
from faultline.schedules import Schedule, make_schedule
from faultline.statements import schedules
from faultline.statements.keys import Scope
from faultline.task import TaskSettings, job_spec

router = APIRouter(route_class=AuthorizedRoute, tags=["schedules"])
Name = Annotated[ScheduleName, Path(alias="schedule", description="A schedule's name.")]

_FIRINGS = 20


@router.get(
    "/schedules",
    summary="The schedules, with their next times",
    response_model=None,
    responses={200: {"model": SchedulesAnswer}, **error_responses()},
    openapi_extra=needs(Access.READ),
)
async def list_schedules(context: CurrentContext) -> Response:
    found = await context.run(schedules.schedules())
    return json_response({"schedules": [document(each) for each in found]})


@router.get(
    "/schedules/{schedule}",
    summary="A schedule with its next times and its newest firings",
    response_model=None,
    responses={200: {"model": ScheduleAnswer}, **error_responses(404, 422)},
    openapi_extra=needs(Access.READ),
)
async def get_schedule(name: Name, context: CurrentContext) -> Response:
    found = await context.run(schedules.find(name))
    if found is None:
        raise UnknownSchedule(f"there is no schedule {name!r}", hint="GET /schedules lists them")
    firings = await context.run(schedules.firings(name, limit=_FIRINGS))
    return json_response(full_document(found, firings))


@router.post(
    "/schedules",
    summary="Add a schedule; the key needs the scope enqueue too",
    response_model=None,
    responses={200: {"model": AddedScheduleAnswer}, **error_responses(409, 413, 415, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def add_schedule(request: ScheduleRequest, context: CurrentContext) -> Response:
    """It fires at its first time from now on.

    A schedule that code declares is refused.
    """
    if context.key is not None and Scope.ENQUEUE not in context.key.scopes:
        raise ApiError(
            403,
            "forbidden",
            "a schedule enqueues jobs, and this key may not enqueue",
            "faultline keys create NAME --scope operate --scope enqueue",
        )
    schedule = _schedule(request, context.services.app)
    statement = schedules.add(schedule.definition, replace=request.replace)
    outcome = await context.operate(statement)
    return json_response({"schedule": request.name, "outcome": outcome})


def _schedule(request: ScheduleRequest, app: Faultline | None) -> Schedule:
    """With an application, checks the arguments and uses the settings of its task."""
    settings = TaskSettings()
    if app is not None:
        task = app.find_task(request.task)
        task.check_arguments(encode_payload(request.payload))
        settings = task.settings
    options = EnqueueOptions(
        queue=request.queue,
        priority=request.priority,
        max_attempts=request.max_attempts,
        expires_in_seconds=request.expires_in,
        tags=request.tags,
    )
    return make_schedule(
        job_spec(request.task, settings, options, request.payload, None),
        request.cron,
        every=request.every_seconds,
        tz=request.time_zone,
        anchor=request.anchor,
        name=request.name,
        missed=request.missed,
        missed_limit=request.missed_limit,
        jitter=request.jitter_seconds,
    )


@router.post(
    "/schedules/{schedule}/pause",
    summary="Pause a schedule: it does not fire",
    response_model=None,
    responses={200: {"model": SchedulePauseAnswer}, **error_responses(404, 413, 415, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def pause_schedule(
    name: Name, context: CurrentContext, why: ReasonRequest | None = None
) -> Response:
    """Times that pass meanwhile never fire. Jobs that were enqueued before run."""
    changed = await context.operate(schedules.pause(name, why.reason if why else None))
    return json_response({"schedule": name, "paused": True, "changed": changed})


@router.post(
    "/schedules/{schedule}/resume",
    summary="Resume a paused schedule, from now on",
    response_model=None,
    responses={200: {"model": SchedulePauseAnswer}, **error_responses(404, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def resume_schedule(name: Name, context: CurrentContext) -> Response:
    changed = await context.operate(schedules.resume(name))
    return json_response({"schedule": name, "paused": False, "changed": changed})


@router.post(
    "/schedules/{schedule}/run",
    summary="Enqueue the job of a schedule at once",
    response_model=None,
    responses={200: {"model": ScheduleRunAnswer}, **error_responses(404, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def run_schedule(name: Name, context: CurrentContext) -> Response:
    """Its planned times stay as they are; a paused schedule runs too."""
    job_id = await context.operate(schedules.run_now(name))
    return json_response({"schedule": name, "job_id": job_id})


@router.delete(
    "/schedules/{schedule}",
    summary="Remove a schedule",
    response_model=None,
    responses={200: {"model": RemovedScheduleAnswer}, **error_responses(404, 409, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def remove_schedule(name: Name, context: CurrentContext) -> Response:
    """A schedule that the code of a live worker declares is refused."""
    await context.operate(schedules.remove(name))
    return json_response({"schedule": name, "removed": True})
