"""The OpenAPI document, and the error responses that endpoints have in common."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from faultline import __version__
from faultline.api.api_settings import ApiSettings
from faultline.api.schemas import ErrorAnswer
from faultline.serving.client import KEY_HEADER

_ERRORS = {
    401: ("The key is missing or not valid.", "unauthenticated", "this needs a key"),
    403: ("The key lacks the scope.", "forbidden", "this key may read; this needs enqueue"),
    404: ("There is no such job, schedule or limit.", "unknown_job", "there is no job …"),
    408: ("The body did not arrive in time.", "request_timeout", "the body did not arrive in time"),
    409: (
        "The idempotency key belongs to another task or payload, or the job's state does not allow it.",
        "idempotency_conflict",
        "idempotency key 'invoice-42' belongs to another task or payload",
    ),
    413: (
        "The body or payload is too long.",
        "payload_too_large",
        "payload is 1,048,577 bytes of JSON; …",
    ),
    415: ("The body is not JSON.", "unsupported_media_type", "the body must be JSON"),
    422: (
        "The input is not valid; nothing was stored.",
        "invalid_input",
        "priority must be 0 (first) to 9 (last), not 12",
    ),
    429: ("Too many requests of this key.", "rate_limited", "more than 200 requests a second"),
    431: ("The headers are too long.", "headers_too_large", "the request line and headers are …"),
    503: (
        "The database is unavailable or slow, or the server is at a limit. Try again after Retry-After.",
        "database_unavailable",
        "the database cannot be reached",
    ),
}
_ALWAYS = (431, 503)
_WITH_KEY = (401, 403, 429)
_WITH_BODY = 415

SECURITY_SCHEMES = {
    "key": {"type": "http", "scheme": "bearer"},
    "key_header": {"type": "apiKey", "in": "header", "name": KEY_HEADER},
}
_ABOUT_KEYS = "Send your key as `Authorization: Bearer flk_…` or as `X-Faultline-Key: flk_…`. "
DESCRIPTION = f"""\
Enqueue, read, cancel, retry, delete and edit jobs of a Faultline queue; pause and resume queues;
list, add, pause, run and remove schedules; read and change limits.

{_ABOUT_KEYS}Every error is
`{{"error": {{"code", "message", "hint"}}}}`; the codes do not change between releases."""


def error_responses(*statuses: int, is_open: bool = False) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route: these statuses, and those of every endpoint."""
    wanted = {*statuses, *_ALWAYS, *(() if is_open else _WITH_KEY)}
    if _WITH_BODY in statuses:
        wanted.add(408)
    return {status: _error_response(status) for status in sorted(wanted)}


def _error_response(status: int) -> dict[str, Any]:
    description, code, message = _ERRORS[status]
    example = {"error": {"code": code, "message": message, "hint": None}}
    documented: dict[str, Any] = {
        "model": ErrorAnswer,
        "description": description,
        "content": {"application/json": {"example": example}},
    }
    if status in (429, 503):
        documented["headers"] = {
            "Retry-After": {"description": "In seconds.", "schema": {"type": "string"}}
        }
    return documented


def describe(app: FastAPI, settings: ApiSettings, *, with_keys: bool = True) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title="Faultline producer API",
            version=__version__,
            description=DESCRIPTION,
            routes=app.routes,
        )
        components = document["components"]
        if with_keys:
            components["securitySchemes"] = SECURITY_SCHEMES
        else:
            _remove_keys(document)
        components["schemas"]["BatchRequest"]["properties"]["jobs"]["maxItems"] = (
            settings.batch_jobs
        )
        for path in ("/jobs", "/jobs/export"):
            for parameter in document["paths"][path]["get"]["parameters"]:
                if parameter["name"] == "limit":
                    parameter["schema"]["maximum"] = settings.page_size
        app.openapi_schema = document
    return app.openapi_schema


def _remove_keys(document: dict[str, Any]) -> None:
    """The host application decides how its users are authenticated."""
    document["info"]["description"] = DESCRIPTION.replace(_ABOUT_KEYS, "")
    for operations in document["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
