"""Operator actions of the dashboard, forwarded to the API with the operator's key.

A request must come from a page of this inspector: its origin must match, and it must carry a CSRF token.
The inspector stores no key; each request carries the operator's. A mounted inspector asks for no key: it
forwards the actions of the host application's users to an API in its own process.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlsplit
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from faultline.inspector import security_middleware
from faultline.inspector.responses import InspectorError
from faultline.inspector.services import InspectorServices, Shared
from faultline.payload import DuplicateKey, parse_json
from faultline.serving.client import KEY_HEADER, address_of, presented_key
from faultline.serving.host_access import Caller, caller_of, is_origin_of

API_SECONDS = 10.0
LARGEST_ANSWER_BYTES = 2**16
_KEY = re.compile(r"[!-~]{1,300}")

_log = logging.getLogger(__name__)


class StrictRoute(APIRoute):
    """Refuses a JSON body that has one name twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            try:
                parse_json(await request.body() or b"null")
            except DuplicateKey as error:
                raise InspectorError(
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


class LimitRate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    jobs: int
    seconds: float
    burst: int = 1


class LimitToReset(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=210)]


class LimitToSet(LimitToReset):
    """A whole limit; the API checks its values."""

    max_running: int | None = None
    rate: LimitRate | None = None


class ScheduleAction(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schedule: Annotated[str, Field(min_length=1, max_length=200)]


class SchedulePause(ScheduleAction):
    reason: Reason = None


class Sender(NamedTuple):
    """The operator of a request: one with a key, or a user of the host."""

    address: str
    key: str = ""
    user: Caller | None = None


def is_possible_operator(request: Request, shared: InspectorServices) -> bool:
    """Whether the client may act: with a key, or as a user of the host application."""
    user = caller_of(request.scope)
    return shared.send_action is None or (user is not None and user.may("operate"))


def permitted(request: Request, shared: Shared) -> Sender:
    """The operator, if the request comes from our own page.

    The key has a header of its own: a proxy in front may use Authorization for its own login, which the
    browser then sends with every request. A host application has authenticated its user, and has refused
    requests from foreign pages.
    """
    if not shared.has_actions:
        raise InspectorError(
            404, "actions_off", "this inspector is read-only", "--api-url enables actions"
        )
    address = address_of(request.scope, behind_proxy=shared.settings.behind_proxy)
    if shared.send_action is not None:
        if not is_possible_operator(request, shared):
            raise InspectorError(403, "forbidden", "this user lacks the scope operate")
        return Sender(address, user=caller_of(request.scope))
    _require_own_page(request, shared)
    key = presented_key(request.headers) or ""
    if not _KEY.fullmatch(key):
        raise InspectorError(
            401,
            "key_required",
            "an action needs an operator's key",
            "faultline keys create NAME --scope operate",
        )
    return Sender(address, key)


def _require_own_page(request: Request, shared: InspectorServices) -> None:
    site = request.headers.get("sec-fetch-site")
    is_ours = is_origin_of(request.headers.get("origin"), request.headers.get("host"))
    if request.method == "GET" and "origin" not in request.headers:
        is_ours = site == "same-origin"  # browsers send no Origin with these
    if not is_ours or site not in (None, "same-origin"):
        raise InspectorError(
            403, "foreign_origin", "the inspector accepts actions from its own page only"
        )
    token, echo = (
        request.cookies.get(security_middleware.COOKIE, ""),
        request.headers.get(security_middleware.HEADER, ""),
    )
    if not shared.tokens.agree(token, echo):
        raise InspectorError(
            403, "csrf_token", "the page's token is missing or out of date", "reload the page"
        )


Operator = Annotated[Sender, Depends(permitted)]


@router.get("/key")
async def check_key(shared: Shared, caller: Operator) -> Response:
    """The name and scopes of the key, or the API's refusal of it."""
    return await _forward(shared, "GET", "/key", caller)


@router.post("/retry")
async def retry(shared: Shared, caller: Operator, wanted: JobAction) -> Response:
    return await _act(shared, f"/jobs/{wanted.job_id}/retry", caller, wanted.reason)


@router.post("/cancel")
async def cancel(shared: Shared, caller: Operator, wanted: JobAction) -> Response:
    return await _act(shared, f"/jobs/{wanted.job_id}/cancel", caller, wanted.reason)


@router.post("/pause")
async def pause(shared: Shared, caller: Operator, wanted: QueueAction) -> Response:
    return await _act(shared, f"/queues/{quote(wanted.queue, '')}/pause", caller, wanted.reason)


@router.post("/resume")
async def resume(shared: Shared, caller: Operator, wanted: QueueAction) -> Response:
    return await _act(shared, f"/queues/{quote(wanted.queue, '')}/resume", caller, wanted.reason)


@router.post("/set-limit")
async def set_limit(shared: Shared, caller: Operator, wanted: LimitToSet) -> Response:
    path = f"/limits/{quote(wanted.name, '')}"
    return await _forward(shared, "PUT", path, caller, wanted.model_dump(exclude={"name"}))


@router.post("/reset-limit")
async def reset_limit(shared: Shared, caller: Operator, wanted: LimitToReset) -> Response:
    return await _forward(shared, "DELETE", f"/limits/{quote(wanted.name, '')}", caller)


@router.post("/pause-schedule")
async def pause_schedule(shared: Shared, caller: Operator, wanted: SchedulePause) -> Response:
    path = f"/schedules/{quote(wanted.schedule, '')}/pause"
    return await _act(shared, path, caller, wanted.reason)


@router.post("/resume-schedule")
async def resume_schedule(shared: Shared, caller: Operator, wanted: ScheduleAction) -> Response:
    path = f"/schedules/{quote(wanted.schedule, '')}/resume"
    return await _forward(shared, "POST", path, caller)


@router.post("/run-schedule")
async def run_schedule(shared: Shared, caller: Operator, wanted: ScheduleAction) -> Response:
    path = f"/schedules/{quote(wanted.schedule, '')}/run"
    return await _forward(shared, "POST", path, caller)


async def _act(
    shared: InspectorServices, path: str, caller: Sender, reason: str | None
) -> Response:
    return await _forward(
        shared, "POST", path, caller, {} if reason is None else {"reason": reason}
    )


# ── requests to the API ──────────────────────────────────────────────────────────────────────────


async def _forward(
    shared: InspectorServices,
    method: str,
    path: str,
    caller: Sender,
    body: Mapping[str, Any] | None = None,
) -> Response:
    """The API's status and JSON, also if it is an error."""
    sent = None if body is None else orjson.dumps(body)
    if shared.send_action is not None:
        assert caller.user is not None  # noqa: S101 - `permitted` has checked it
        status, answer = await shared.send_action(
            method, path, caller.user, sent, address=caller.address
        )
        return Response(answer, status, media_type="application/json")
    api_url = shared.settings.api_url
    assert api_url is not None  # noqa: S101 - `permitted` has checked it
    status, answer = await asyncio.to_thread(_request, api_url, method, path, caller, sent)
    return Response(answer, status, media_type="application/json")


def _request(
    api_url: str, method: str, path: str, caller: Sender, body: bytes | None
) -> tuple[int, bytes]:
    """Does not follow redirects: they would send the key to another host."""
    parts = urlsplit(api_url)
    secure = parts.scheme == "https"
    connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=API_SECONDS)
    # An API that trusts this proxy (--tls-proxy) records the operator's address instead of ours.
    headers = {KEY_HEADER: caller.key, "X-Forwarded-For": caller.address}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, parts.path.rstrip("/") + path, body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.read(LARGEST_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        _log.warning("the API did not answer: %s", error)
        hint = "it may have been done all the same: check the job or the queue"
        raise InspectorError(502, "api_unavailable", "the API did not answer", hint) from error
    finally:
        connection.close()
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError:
        message = f"the API answered {answer.status} with something that is not JSON"
        hint = "is --api-url the address of faultline api?"
        raise InspectorError(502, "api_answer", message, hint) from None
    return answer.status, content
