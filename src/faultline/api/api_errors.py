"""Every error as a client sees it: one JSON shape, no internals of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from fastapi import HTTPException, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from faultline import errors
from faultline.api.known_names import names_at
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import explain_error, is_connection_lost, is_serialization_conflict
from faultline.suggestions import did_you_mean

_LONGEST_NAME = 80
_RETRY_AFTER = {"Retry-After": "1"}
_SEND_AGAIN = (
    "send it again, new jobs with the same idempotency key: the first request may have been done"
)
_INTERNAL = "the server failed; its log has the reason"
_AWAY = ("the database cannot be reached", _SEND_AGAIN)
_NOT_READY = ("the database is not ready for this API", "the server's log has the reason")

STATUSES: dict[type[errors.FaultlineError], int] = {
    errors.UnknownJob: 404,
    errors.UnknownSchedule: 404,
    errors.UnknownLimit: 404,
    errors.IdempotencyConflict: 409,
    errors.IllegalTransition: 409,
    errors.UniqueKeyHeld: 409,
    errors.PayloadTooLarge: 413,
    errors.InvalidInput: 422,
    errors.UnknownTask: 422,
}
# PostgreSQL's messages name hosts, accounts and settings: they go to the log, these to the client.
REDACTED: dict[type[errors.FaultlineError], tuple[str, str]] = {
    errors.DatabaseUnavailable: _AWAY,
    errors.SchemaMismatch: _NOT_READY,
    errors.DatabaseRefused: _NOT_READY,
}
# Errors that FastAPI and Starlette raise.
HTTP_ERRORS = {
    400: ("bad_request", "the request cannot be read", None),
    404: (
        "not_found",
        "there is no endpoint at this path",
        "GET /openapi.json lists them, with any key",
    ),
    405: ("method_not_allowed", "this path does not support this method", "see the Allow header"),
}


class ApiError(HTTPException):
    """The error response for the client, and the text for the log only."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        for_the_log: str | None = None,
    ) -> None:
        super().__init__(status, detail=message, headers=dict(headers or {}))
        self.code, self.message, self.hint = code, message, hint
        self.for_the_log = for_the_log

    def about(self, what: str) -> ApiError:
        return ApiError(self.status_code, self.code, f"{what}: {self.message}", self.hint)

    @property
    def response(self) -> Response:
        error = {"code": self.code, "message": self.message, "hint": self.hint}
        return json_response({"error": error}, self.status_code, self.headers)


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        orjson.dumps(content), status, dict(headers or {}), media_type="application/json"
    )


def api_error_of(error: Exception) -> ApiError:
    """The API's error response for any exception."""
    match error:
        case ApiError():
            return error
        case DriverError():
            return _of_driver(error)
        case errors.FaultlineError():
            return _of_faultline(error)
        case RequestValidationError() | ValidationError():
            return invalid_request(error)
        case AnyHTTPException():
            code, message, hint = HTTP_ERRORS.get(error.status_code, HTTP_ERRORS[400])
            return ApiError(error.status_code, code, message, hint, error.headers)
    return ApiError(
        *(500, "internal_error", _INTERNAL),
        for_the_log=f"{type(error).__name__}: {error}",
    )


def invalid_request(
    error: RequestValidationError | ValidationError,
    query_names: Iterable[str] = (),
    body: Any = None,
) -> ApiError:
    """The response for the first problem of a request.

    `query_names` are the parameters that the query string may have, `body` is the type of the body.
    """
    problem = error.errors()[0]
    place, known = problem["loc"], query_names
    if place[:1] != ("query",):
        is_request = isinstance(error, RequestValidationError)  # its places begin with "body"
        known = names_at(body, place[1:-1] if is_request else place[:-1])
    is_unknown_name = problem["type"] == "extra_forbidden"
    hint = did_you_mean(str(place[-1])[:_LONGEST_NAME], known) if is_unknown_name else None
    return ApiError(422, errors.InvalidInput.code, _first_problem(error), hint)


def _of_faultline(error: errors.FaultlineError) -> ApiError:
    if redacted := REDACTED.get(type(error)):
        return ApiError(503, error.code, *redacted, headers=_RETRY_AFTER, for_the_log=str(error))
    for kind, status in STATUSES.items():
        if isinstance(error, kind):
            message = error.message
            if isinstance(error, errors.IdempotencyConflict) and error.job_id:
                message += f" (job {error.job_id})"
            return ApiError(status, error.code, message, error.hint)
    return ApiError(500, error.code, _INTERNAL, for_the_log=str(error))


def _of_driver(error: DriverError) -> ApiError:
    state = error.sqlstate or ""
    if state == "55P03":
        return ApiError(
            503, "locked", "another transaction holds the lock", "try again", _RETRY_AFTER
        )
    if state == "57014":
        return timed_out()
    if is_serialization_conflict(error):
        message = "other transactions changed the same jobs; nothing was written"
        return ApiError(503, "conflicting_writes", message, "try again", _RETRY_AFTER)
    if state[:2] in ("22", "54"):  # invalid data, or a limit of PostgreSQL
        message = error.diag.message_primary or "the database cannot store this"
        return ApiError(422, errors.InvalidInput.code, message)
    if is_connection_lost(error):
        message = " ".join(str(error).split())
        return _of_faultline(errors.DatabaseUnavailable(f"the session was lost: {message}"))
    return _of_faultline(explain_error(error))


def timed_out() -> ApiError:
    return ApiError(
        503, "database_timeout", "the database did not answer in time", _SEND_AGAIN, _RETRY_AFTER
    )


def overloaded(message: str) -> ApiError:
    return ApiError(503, "overloaded", message, "try again", _RETRY_AFTER)


def _first_problem(error: RequestValidationError | ValidationError) -> str:
    problem = error.errors()[0]
    where = [str(part)[:_LONGEST_NAME] for part in problem["loc"]]
    named = ".".join(where[1:] if where[:1] in (["body"], ["query"], ["path"]) else where)
    match problem["type"]:
        case "extra_forbidden":
            return f"{named!r} is not a known name"
        case "missing":
            return f"{named!r} is missing" if named else "the body is missing"
    message = str(problem["msg"])
    return f"{named}: {message}" if named else f"the body: {message}"
