"""JSON responses, and errors with a stable code and what to do about them.

An exposed inspector has no login and other machines reach it. PostgreSQL's messages about accounts, hosts,
ports and databases then go to the log only, under the error id that the response names.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from faultline import errors
from faultline.events import Event, emit
from faultline.wording import without_passwords

LOG_AGAIN_SECONDS = 60.0
_MAX_REMEMBERED = 100
_PUBLIC_MESSAGES: dict[type[errors.FaultlineError], str] = {
    errors.DatabaseUnavailable: "the database cannot be reached",
    errors.SchemaMismatch: "the database is not ready for this inspector",
    errors.DatabaseRefused: "the database refused to be read",
}
_OTHER = "the inspector failed"
# Errors about the client's own request: they name no account and no host.
_ALWAYS_PUBLIC = (
    errors.UnknownJob,
    errors.UnknownLimit,
    errors.UnknownSchedule,
    errors.InvalidInput,
)
_STATUSES: dict[type[errors.FaultlineError], int] = {
    errors.DatabaseUnavailable: 503,
    errors.DatabaseRefused: 503,
    errors.SchemaMismatch: 503,
    errors.UnknownJob: 404,
    errors.UnknownLimit: 404,
    errors.UnknownSchedule: 404,
    errors.InvalidInput: 422,
}
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content)


def to_json(content: Any) -> bytes:
    return orjson.dumps(content, default=str)


def error(status: int, code: str, message: str, hint: str | None = None, **headers: str) -> Json:
    return Json(
        {"error": {"code": code, "message": message, "hint": hint}},
        status_code=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


class InspectorError(Exception):
    """An error response, raised where the error is found."""

    def __init__(self, status: int, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.response = error(status, code, message, hint)


# ── errors of the database ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PublicError:
    """What a client may read of an error."""

    message: str
    hint: str | None


class ErrorRedaction:
    """With `hides_details`, errors name no account and no host; the log has all."""

    def __init__(self, *, hides_details: bool) -> None:
        self._hides_details = hides_details
        self._logged: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()

    def public(self, error: errors.FaultlineError) -> PublicError:
        if not self._hides_details or isinstance(error, _ALWAYS_PUBLIC):
            return PublicError(error.message, error.hint)
        kinds = type(error).__mro__
        message = next(
            (_PUBLIC_MESSAGES[kind] for kind in kinds if kind in _PUBLIC_MESSAGES), _OTHER
        )
        hint = f"the inspector's log has the reason: look for error {self._log(error)}"
        return PublicError(message, hint)

    def _log(self, error: errors.FaultlineError) -> str:
        """Log the error at most once a minute, and return its id in the log."""
        text = without_passwords(" ".join(str(error).split()))
        error_id, logged_at = self._logged.get(
            (error.code, text), (secrets.token_hex(4), float("-inf"))
        )
        now = time.monotonic()
        if now - logged_at >= LOG_AGAIN_SECONDS:
            emit(
                Event.DEGRADED, purpose="inspector", code=error.code, error=text, error_id=error_id
            )
            logged_at = now
        self._logged[error.code, text] = (error_id, logged_at)
        self._logged.move_to_end((error.code, text))
        if len(self._logged) > _MAX_REMEMBERED:
            self._logged.popitem(last=False)
        return error_id


# ── exception handlers of the application ────────────────────────────────────────────────────────


async def inspector_error(request: Request, raised: Exception) -> Json:
    assert isinstance(raised, InspectorError)  # noqa: S101 - registered for this class
    return raised.response


async def faultline_error(request: Request, raised: Exception) -> Json:
    assert isinstance(raised, errors.FaultlineError)  # noqa: S101 - registered for this class
    status = next((_STATUSES[kind] for kind in type(raised).__mro__ if kind in _STATUSES), 500)
    public = request.app.state.services.redaction.public(raised)
    return error(status, raised.code, public.message, public.hint)


async def invalid_request(request: Request, raised: Exception) -> Json:
    assert isinstance(raised, RequestValidationError)  # noqa: S101 - registered for this class
    first = raised.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return error(422, "invalid_input", f"{where}: {first['msg']}")


async def http_error(request: Request, raised: Exception) -> Json:
    assert isinstance(raised, HTTPException)  # noqa: S101 - registered for this class
    code = _HTTP_CODES.get(raised.status_code, "http_error")
    return error(raised.status_code, code, str(raised.detail))


async def unexpected_error(request: Request, raised: Exception) -> Json:
    """The log has the traceback; the client learns only that the inspector failed."""
    return error(500, "internal_error", "the inspector failed", "see its log")
