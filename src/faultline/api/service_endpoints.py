"""Endpoints for probes, metrics, the OpenAPI document, keys and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from faultline.api.api_errors import json_response
from faultline.api.openapi import error_responses
from faultline.api.request_context import Access, CurrentContext
from faultline.api.routing import AuthorizedRoute, needs
from faultline.api.service_schemas import AuditPage, HealthAnswer, KeyAnswer, ReadyAnswer
from faultline.errors import InvalidInput
from faultline.metrics import exposition
from faultline.statements import audit
from faultline.statements.audit import AuditFilter
from faultline.statements.keys import Scope

MAX_AUDIT_ENTRIES = 1000

router = APIRouter(route_class=AuthorizedRoute)

# ── probes and metrics ───────────────────────────────────────────────────────────────────────────


@router.get(
    "/health",
    tags=["probes"],
    summary="Whether the database answers",
    response_model=None,
    responses={200: {"model": HealthAnswer}, **error_responses(is_open=True)},
    openapi_extra=needs(Access.OPEN),
)
async def get_health(context: CurrentContext) -> Response:
    """Asks the database now, on a connection of its own; nothing is cached."""
    seconds = await context.services.database.ping()
    return json_response({"status": "ok", "database_seconds": round(seconds, 6)})


@router.get(
    "/ready",
    tags=["probes"],
    summary="Whether a job could be enqueued",
    response_model=None,
    responses={200: {"model": ReadyAnswer}, **error_responses(is_open=True)},
    openapi_extra=needs(Access.OPEN),
)
async def get_readiness(context: CurrentContext) -> Response:
    """The database answers, accepts writes, and accepts jobs of this version."""
    await context.services.database.require_ready()
    return json_response({"status": "ready"})


@router.get(
    "/metrics",
    tags=["probes"],
    summary="The metrics of this process, for Prometheus",
    response_model=None,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics."},
        **error_responses(),
    },
    openapi_extra=needs(Access.METRICS),
)
async def get_metrics() -> Response:
    page = exposition()
    return Response(page.body, media_type=page.content_type)


@router.get(
    "/openapi.json",
    tags=["probes"],
    summary="This description",
    response_model=None,
    responses={200: {"description": "An OpenAPI document."}, **error_responses()},
    openapi_extra=needs(Access.ANY_KEY),
)
async def get_openapi(request: Request) -> Response:
    document = request.app.openapi()
    if prefix := request.scope.get("root_path"):  # where the API is mounted
        document = {**document, "servers": [{"url": prefix}]}
    return json_response(document)


# ── keys and the audit log ───────────────────────────────────────────────────────────────────────


@router.get(
    "/key",
    tags=["keys"],
    summary="The key of this request",
    response_model=None,
    responses={200: {"model": KeyAnswer}, **error_responses()},
    openapi_extra=needs(Access.ANY_KEY),
)
async def get_key(context: CurrentContext) -> Response:
    """The key's name and scopes.

    In a host application it describes the user. A server without keys answers with no name and every
    scope.
    """
    known = context.key or context.caller
    if known is None:
        return json_response({"name": None, "scopes": sorted(Scope)})
    return json_response({"name": known.name, "scopes": sorted(known.scopes)})


Text = Annotated[str | None, Field(max_length=300)]


class AuditQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    actor: Text = Field(None, description="Only entries of this actor.")
    action: Text = Field(None, description="Only this action.")
    object: Text = Field(None, description="Only this object, such as `queue mail`.")
    result: Text = Field(None, description="done, unchanged or refused.")
    address: Text = Field(None, description="Only entries of this client address.")
    limit: int = Field(50, ge=1, le=MAX_AUDIT_ENTRIES, description="The page's maximum length.")
    before: int | None = Field(None, ge=0, lt=2**63, description="`next` of the previous page.")


@router.get(
    "/audit",
    tags=["audit"],
    summary="Actions of operators and refused keys, newest first",
    response_model=None,
    responses={200: {"model": AuditPage}, **error_responses(422)},
    openapi_extra=needs(Access.OPERATE),
)
async def list_audit(wanted: Annotated[AuditQuery, Query()], context: CurrentContext) -> Response:
    """A page with a filter examines a bounded number of entries."""
    if any("\0" in str(value) for value in wanted.model_dump().values()):
        raise InvalidInput("a filter contains a NUL character, which no entry has")
    chosen = AuditFilter(wanted.actor, wanted.action, wanted.object, wanted.result, wanted.address)
    page = await context.run(audit.page(chosen, limit=wanted.limit, before=wanted.before))
    return json_response(page)
