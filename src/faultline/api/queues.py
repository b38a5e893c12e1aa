"""The endpoints about queues: how full they are, and whether anything is claimed from them."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from faultline.api.document import refusals
from faultline.api.models import PauseAnswer, QueueName, QueuesAnswer, ReasonRequest
from faultline.api.refusals import answer
from faultline.api.route import GuardedRoute, needs
from faultline.api.visit import Access, CurrentVisit
from faultline.statements import queues
from faultline.statements.queues import QueueCount, Standing

router = APIRouter(route_class=GuardedRoute, tags=["queues"])
Queue = Annotated[QueueName, Path(description="A queue's name.")]

_NONE = {"at_least": 0, "is_exact": True, "estimate": None, "oldest_seconds": None}


@router.get(
    "/queues",
    summary="How full the queues are",
    response_model=None,
    responses={200: {"model": QueuesAnswer}, **refusals()},
    openapi_extra=needs(Access.READ),
)
async def list_queues(visit: CurrentVisit) -> Response:
    """Counted up to a bound, by indexes alone; beyond it, estimated, which `is_exact` says."""
    counts = await visit.run(queues.queues())
    paused = {each.queue: each.reason for each in await visit.run(queues.paused())}
    by_queue = {
        queue: {count.standing: _told(count) for count in group}
        for queue, group in groupby(counts, key=lambda count: count.queue)
    }
    return answer(
        {
            "queues": [
                {
                    "queue": queue,
                    "paused": queue in paused,
                    "paused_reason": paused.get(queue),
                    **{
                        standing.value: by_queue.get(queue, {}).get(standing, _NONE)
                        for standing in Standing
                    },
                }
                for queue in sorted(by_queue.keys() | paused.keys())
            ]
        }
    )


def _told(count: QueueCount) -> dict[str, Any]:
    return {
        "at_least": count.at_least,
        "is_exact": count.is_exact,
        "estimate": count.estimate,
        "oldest_seconds": count.oldest_seconds,
    }


@router.post(
    "/queues/{queue}/pause",
    summary="Let nothing be claimed from a queue",
    response_model=None,
    responses={200: {"model": PauseAnswer}, **refusals(413, 415, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def pause_queue(
    queue: Queue, visit: CurrentVisit, why: ReasonRequest | None = None
) -> Response:
    """What runs is finished; what is enqueued waits. A queue may be paused before it has any jobs."""
    changed = await visit.operate(queues.pause(queue, why.reason if why else None))
    return answer({"queue": queue, "paused": True, "changed": changed})


@router.post(
    "/queues/{queue}/resume",
    summary="Let a paused queue go on",
    response_model=None,
    responses={200: {"model": PauseAnswer}, **refusals(422)},
    openapi_extra=needs(Access.OPERATE),
)
async def resume_queue(queue: Queue, visit: CurrentVisit) -> Response:
    changed = await visit.operate(queues.resume(queue))
    return answer({"queue": queue, "paused": False, "changed": changed})
