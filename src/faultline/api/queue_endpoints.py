"""Endpoints for queues: counts, pause and resume."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from faultline.api.api_errors import json_response
from faultline.api.openapi import error_responses
from faultline.api.request_context import Access, CurrentContext
from faultline.api.routing import AuthorizedRoute, needs
from faultline.api.schemas import PauseAnswer, QueueName, QueuesAnswer, ReasonRequest
from faultline.statements import queues
from faultline.statements.queues import CountedState, QueueCount

router = APIRouter(route_class=AuthorizedRoute, tags=["queues"])
Queue = Annotated[QueueName, Path(description="A queue's name.")]

_NONE = {"at_least": 0, "is_exact": True, "estimate": None, "oldest_seconds": None}


@router.get(
    "/queues",
    summary="The queues with their counts of jobs",
    response_model=None,
    responses={200: {"model": QueuesAnswer}, **error_responses()},
    openapi_extra=needs(Access.READ),
)
async def list_queues(context: CurrentContext) -> Response:
    """Counts are exact up to a bound and estimated beyond it; `is_exact` tells which."""
    counts = await context.run(queues.queues())
    paused = {each.queue: each.reason for each in await context.run(queues.paused())}
    by_queue = {
        queue: {count.standing: _document(count) for count in group}
        for queue, group in groupby(counts, key=lambda count: count.queue)
    }
    return json_response(
        {
            "queues": [
                {
                    "queue": queue,
                    "paused": queue in paused,
                    "paused_reason": paused.get(queue),
                    **{
                        standing.value: by_queue.get(queue, {}).get(standing, _NONE)
                        for standing in CountedState
                    },
                }
                for queue in sorted(by_queue.keys() | paused.keys())
            ]
        }
    )


def _document(count: QueueCount) -> dict[str, Any]:
    return {
        "at_least": count.at_least,
        "is_exact": count.is_exact,
        "estimate": count.estimate,
        "oldest_seconds": count.oldest_seconds,
    }


@router.post(
    "/queues/{queue}/pause",
    summary="Pause a queue: workers claim no jobs from it",
    response_model=None,
    responses={200: {"model": PauseAnswer}, **error_responses(413, 415, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def pause_queue(
    queue: Queue, context: CurrentContext, why: ReasonRequest | None = None
) -> Response:
    """Running jobs finish; queued jobs wait.

    A queue may be paused before it has any jobs.
    """
    changed = await context.operate(queues.pause(queue, why.reason if why else None))
    return json_response({"queue": queue, "paused": True, "changed": changed})


@router.post(
    "/queues/{queue}/resume",
    summary="Resume a paused queue",
    response_model=None,
    responses={200: {"model": PauseAnswer}, **error_responses(422)},
    openapi_extra=needs(Access.OPERATE),
)
async def resume_queue(queue: Queue, context: CurrentContext) -> Response:
    changed = await context.operate(queues.resume(queue))
    return json_response({"queue": queue, "paused": False, "changed": changed})
