"""The endpoints for whoever watches the API: is it well, is it ready, what has it counted."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from faultline.api.document import refusals
from faultline.api.models import HealthAnswer, ReadyAnswer
from faultline.api.refusals import answer
from faultline.api.route import GuardedRoute, needs
from faultline.api.visit import Access, CurrentVisit
from faultline.metrics import exposition

router = APIRouter(route_class=GuardedRoute, tags=["probes"])


@router.get(
    "/health",
    summary="Whether the database answers",
    response_model=None,
    responses={200: {"model": HealthAnswer}, **refusals(is_open=True)},
    openapi_extra=needs(Access.OPEN),
)
async def get_health(visit: CurrentVisit) -> Response:
    """Asked just now, on a connection of its own: nothing in the answer is remembered."""
    seconds = await visit.service.pulse.feel()
    return answer({"status": "ok", "database_seconds": round(seconds, 6)})


@router.get(
    "/ready",
    summary="Whether a job could be enqueued",
    response_model=None,
    responses={200: {"model": ReadyAnswer}, **refusals(is_open=True)},
    openapi_extra=needs(Access.OPEN),
)
async def get_readiness(visit: CurrentVisit) -> Response:
    """The database answers, can be written to, and has a schema that takes jobs from this version."""
    await visit.service.pulse.require_ready()
    return answer({"status": "ready"})


@router.get(
    "/metrics",
    summary="What this process has counted, for Prometheus",
    response_model=None,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics."},
        **refusals(),
    },
    openapi_extra=needs(Access.METRICS),
)
async def get_metrics() -> Response:
    page = exposition()
    return Response(page.body, media_type=page.content_type)


@router.get(
    "/openapi.json",
    summary="This description",
    response_model=None,
    responses={200: {"description": "An OpenAPI document."}, **refusals()},
    openapi_extra=needs(Access.ANY_KEY),
)
async def get_openapi(request: Request) -> Response:
    return answer(request.app.openapi())
