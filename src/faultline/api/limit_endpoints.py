"""Endpoints for limits: list, show, set and reset."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from faultline.api.api_errors import json_response
from faultline.api.limit_schemas import (
    LimitAnswer,
    LimitDetailsAnswer,
    LimitName,
    LimitRequest,
    LimitsAnswer,
    ResetAnswer,
)
from faultline.api.openapi import error_responses
from faultline.api.request_context import Access, CurrentContext, RequestContext
from faultline.api.routing import AuthorizedRoute, needs
from faultline.errors import UnknownLimit
from faultline.limits import Rate, operator_values
from faultline.statements import limit_keys, limits

router = APIRouter(route_class=AuthorizedRoute, tags=["limits"])
Name = Annotated[LimitName, Path(description="queue:QUEUE, task:TASK or key:NAME.")]


@router.get(
    "/limits",
    summary="All limits, with how many jobs run and wait under each",
    response_model=None,
    responses={200: {"model": LimitsAnswer}, **error_responses()},
    openapi_extra=needs(Access.READ),
)
async def list_limits(context: CurrentContext) -> Response:
    found = await context.run(limits.uses())
    return json_response({"limits": [limits.as_facts(use) for use in found]})


@router.get(
    "/limits/{name}",
    summary="One limit, its tasks and its fullest keys",
    response_model=None,
    responses={200: {"model": LimitDetailsAnswer}, **error_responses(404, 422)},
    openapi_extra=needs(Access.READ),
)
async def get_limit(name: Name, context: CurrentContext) -> Response:
    facts = await _facts(context, name)
    arguments = await context.run(limit_keys.bound_arguments(name))
    keys = await context.run(limit_keys.fullest_keys(name))
    return json_response(
        {
            **facts,
            "arguments": [asdict(argument) for argument in arguments],
            "keys": [asdict(key) for key in keys],
        }
    )


@router.put(
    "/limits/{name}",
    summary="Set a limit at once, for all workers",
    response_model=None,
    responses={200: {"model": LimitAnswer}, **error_responses(413, 415, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def set_limit(name: Name, wanted: LimitRequest, context: CurrentContext) -> Response:
    """The body is the whole limit, which stays until it is reset.

    Code that declares other values does not change it. Running jobs are not stopped. A limit `key:…` without
    a task applies to no job.
    """
    rate = wanted.rate
    values = operator_values(
        name,
        wanted.max_running,
        None if rate is None else Rate(rate.jobs, per=rate.seconds, burst=rate.burst),
    )
    task, argument = (None, None) if (key := wanted.key) is None else (key.task, key.argument)
    change = limits.set_limit(name, **values._asdict(), task=task, argument=argument)
    await context.operate(change)
    return json_response(await _facts(context, name))


@router.delete(
    "/limits/{name}",
    summary="Reset a limit to the values of the code, or remove it",
    response_model=None,
    responses={200: {"model": ResetAnswer}, **error_responses(404, 422)},
    openapi_extra=needs(Access.OPERATE),
)
async def reset_limit(name: Name, context: CurrentContext) -> Response:
    """A limit that no code declares is removed, and its waiting jobs become due."""
    result = await context.operate(limits.reset(name))
    return json_response({"name": name, "result": result})


async def _facts(context: RequestContext, name: str) -> dict[str, Any]:
    for use in await context.run(limits.uses()):
        if use.name == name:
            return limits.as_facts(use)
    raise UnknownLimit(f"there is no limit {name!r}", hint="GET /limits lists them")
