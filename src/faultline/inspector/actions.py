"""What an operator can do from the dashboard: asked of the API with the operator's own key, never done here.

A request must come from a page of ours (its origin, and a token that only such a page can read), and
carries the key itself: the inspector keeps none.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, urlsplit
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from faultline.inspector import csrf, producer_api
from faultline.inspector.answers import Refusal
from faultline.inspector.services import Services, Shared

LONGEST_KEY = 300

router = APIRouter(prefix="/api/actions")

Reason = Annotated[str | None, Field(max_length=1_000)]


class JobAction(BaseModel):
    model_config = ConfigDict(extra="forbid")

    job_id: UUID
    reason: Reason = None


class QueueAction(BaseModel):
    model_config = ConfigDict(extra="forbid")

    queue: Annotated[str, Field(min_length=1, max_length=63)]
    reason: Reason = None


def permitted(request: Request, shared: Shared) -> str:
    """The operator's Authorization header, if the request is one of our own page's."""
    if shared.settings.api_url is None:
        raise Refusal(
            404, "actions_off", "this inspector only shows", "--api-url switches actions on"
        )
    _require_own_page(request, shared)
    key = request.headers.get("authorization", "")
    if not key.startswith("Bearer ") or len(key) > LONGEST_KEY or not key.isascii():
        raise Refusal(
            401,
            "key_required",
            "an action needs an operator's key",
            "faultline keys create NAME --scope operate",
        )
    return key


def _require_own_page(request: Request, shared: Services) -> None:
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    is_ours = origin is not None and urlsplit(origin).netloc == request.headers.get("host")
    if not is_ours or site not in (None, "same-origin"):
        raise Refusal(403, "foreign_origin", "actions are taken from the inspector's own page only")
    token, echo = request.cookies.get(csrf.COOKIE, ""), request.headers.get(csrf.HEADER, "")
    if not shared.tokens.agree(token, echo):
        raise Refusal(
            403, "csrf_token", "the page's token is missing or out of date", "load it again"
        )


Key = Annotated[str, Depends(permitted)]


@router.post("/retry")
async def retry(shared: Shared, key: Key, wanted: JobAction) -> Response:
    return await _forward(shared, f"/jobs/{wanted.job_id}/retry", key, wanted.reason)


@router.post("/cancel")
async def cancel(shared: Shared, key: Key, wanted: JobAction) -> Response:
    return await _forward(shared, f"/jobs/{wanted.job_id}/cancel", key, wanted.reason)


@router.post("/pause")
async def pause(shared: Shared, key: Key, wanted: QueueAction) -> Response:
    return await _forward(shared, f"/queues/{quote(wanted.queue, '')}/pause", key, wanted.reason)


@router.post("/resume")
async def resume(shared: Shared, key: Key, wanted: QueueAction) -> Response:
    return await _forward(shared, f"/queues/{quote(wanted.queue, '')}/resume", key, wanted.reason)


async def _forward(shared: Services, path: str, key: str, reason: str | None) -> Response:
    api_url = shared.settings.api_url
    assert api_url is not None  # noqa: S101 - otherwise nothing was permitted
    body = {} if reason is None else {"reason": reason}
    status, answer = await producer_api.post(api_url, path, authorization=key, body=body)
    return Response(answer, status, media_type="application/json")
