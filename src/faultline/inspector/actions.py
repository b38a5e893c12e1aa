"""What an operator can do from the dashboard: asked of the API with the operator's own key, never done here.

A request must come from a page of ours (its origin, and a token that only such a page can read), and
carries the key itself: the inspector keeps none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import quote, urlsplit
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from faultline.inspector import csrf, producer_api
from faultline.inspector.answers import Refusal
from faultline.inspector.producer_api import Caller
from faultline.inspector.services import Services, Shared
from faultline.payload import DuplicateKey, parse_json
from faultline.serving.client import address_of, presented_key

_KEY = re.compile(r"[!-~]{1,300}")


class StrictRoute(APIRoute):
    """Refuses a body in which one name is there twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            try:
                parse_json(await request.body() or b"null")
            except DuplicateKey as error:
                raise Refusal(
                    422, "duplicate_key", f"the body is ambiguous: {error}", "send each name once"
                ) from None
            except ValueError:
                pass  # FastAPI refuses it
            return await handle(request)

        return strict


router = APIRouter(prefix="/api/actions", route_class=StrictRoute)

Reason = Annotated[str | None, Field(max_length=1_000)]


class JobAction(BaseModel):
    model_config = ConfigDict(extra="forbid")

    job_id: UUID
    reason: Reason = None


class QueueAction(BaseModel):
    model_config = ConfigDict(extra="forbid")

    queue: Annotated[str, Field(min_length=1, max_length=63)]
    reason: Reason = None


def permitted(request: Request, shared: Shared) -> Caller:
    """The operator, if the request comes from our own page.

    The key has a header of its own, because a proxy in front may use Authorization for a login of its
    own, which the browser then sends with every request."""
    if shared.settings.api_url is None:
        raise Refusal(
            404, "actions_off", "this inspector only shows", "--api-url switches actions on"
        )
    _require_own_page(request, shared)
    key = presented_key(request.headers) or ""
    if not _KEY.fullmatch(key):
        raise Refusal(
            401,
            "key_required",
            "an action needs an operator's key",
            "faultline keys create NAME --scope operate",
        )
    return Caller(key, address_of(request.scope, behind_proxy=shared.settings.behind_proxy))


def _require_own_page(request: Request, shared: Services) -> None:
    site = request.headers.get("sec-fetch-site")
    is_ours = _is_at(request.headers.get("origin"), request.headers.get("host"))
    if request.method == "GET" and "origin" not in request.headers:
        is_ours = site == "same-origin"  # browsers send no origin with these
    if not is_ours or site not in (None, "same-origin"):
        raise Refusal(403, "foreign_origin", "actions are taken from the inspector's own page only")
    token, echo = request.cookies.get(csrf.COOKIE, ""), request.headers.get(csrf.HEADER, "")
    if not shared.tokens.agree(token, echo):
        raise Refusal(
            403, "csrf_token", "the page's token is missing or out of date", "load it again"
        )


def _is_at(origin: str | None, host: str | None) -> bool:
    try:
        return origin is not None and urlsplit(origin).netloc == host
    except ValueError:  # such as http://[
        return False


Operator = Annotated[Caller, Depends(permitted)]


@router.get("/key")
async def check_key(shared: Shared, caller: Operator) -> Response:
    """The name and scopes of the key, or the API's refusal of it."""
    status, answer = await producer_api.get(_api_url(shared), "/key", caller=caller)
    return Response(answer, status, media_type="application/json")


@router.post("/retry")
async def retry(shared: Shared, caller: Operator, wanted: JobAction) -> Response:
    return await _forward(shared, f"/jobs/{wanted.job_id}/retry", caller, wanted.reason)


@router.post("/cancel")
async def cancel(shared: Shared, caller: Operator, wanted: JobAction) -> Response:
    return await _forward(shared, f"/jobs/{wanted.job_id}/cancel", caller, wanted.reason)


@router.post("/pause")
async def pause(shared: Shared, caller: Operator, wanted: QueueAction) -> Response:
    return await _forward(shared, f"/queues/{quote(wanted.queue, '')}/pause", caller, wanted.reason)


@router.post("/resume")
async def resume(shared: Shared, caller: Operator, wanted: QueueAction) -> Response:
    return await _forward(
        shared, f"/queues/{quote(wanted.queue, '')}/resume", caller, wanted.reason
    )


async def _forward(shared: Services, path: str, caller: Caller, reason: str | None) -> Response:
    body = {} if reason is None else {"reason": reason}
    status, answer = await producer_api.post(_api_url(shared), path, caller=caller, body=body)
    return Response(answer, status, media_type="application/json")


def _api_url(shared: Services) -> str:
    api_url = shared.settings.api_url
    assert api_url is not None  # noqa: S101 - otherwise nothing was permitted
    return api_url
