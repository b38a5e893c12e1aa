"""Refusals: what a client is told when the answer is no, in one shape and without our inner workings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import HTTPException, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from faultline import errors
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import explain_error, is_connection_lost, is_serialization_conflict

_LONGEST_NAME = 80
_RETRY_SOON = {"Retry-After": "1"}
_SEND_AGAIN = (
    "send it again; what was sent may have been done already, so for new jobs with the same"
    " idempotency key"
)
_WRONG_HERE = "something went wrong here; its operator finds it in the log"
_AWAY = ("the database cannot be reached", _SEND_AGAIN)
_NOT_READY = ("the database is not ready for this API", "its operator finds the reason in its log")

STATUSES: dict[type[errors.FaultlineError], int] = {
    errors.UnknownJob: 404,
    errors.IdempotencyConflict: 409,
    errors.IllegalTransition: 409,
    errors.PayloadTooLarge: 413,
    errors.InvalidInput: 422,
    errors.UnknownTask: 422,
}
# Where the server's own words would name hosts, accounts and settings: ours, and its in the log.
DISCREET: dict[type[errors.FaultlineError], tuple[str, str]] = {
    errors.DatabaseUnavailable: _AWAY,
    errors.SchemaMismatch: _NOT_READY,
    errors.DatabaseRefused: _NOT_READY,
}
# What FastAPI and Starlette refuse by themselves.
PLAIN = {
    400: ("bad_request", "the request cannot be read", None),
    404: ("not_found", "there is nothing at this path", "GET /openapi.json lists what there is"),
    405: ("method_not_allowed", "this path does not take this method", "see the Allow header"),
}


class Refusal(HTTPException):
    """A refusal as a client hears it, and what only the log should say."""

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

    def about(self, what: str) -> Refusal:
        return Refusal(self.status_code, self.code, f"{what}: {self.message}", self.hint)

    @property
    def response(self) -> Response:
        error = {"code": self.code, "message": self.message, "hint": self.hint}
        return answer({"error": error}, self.status_code, self.headers)


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        orjson.dumps(content), status, dict(headers or {}), media_type="application/json"
    )


def refusal_of(error: Exception) -> Refusal:
    """What a client hears of any error at all."""
    match error:
        case Refusal():
            return error
        case DriverError():
            return _of_driver(error)
        case errors.FaultlineError():
            return _of_faultline(error)
        case RequestValidationError() | ValidationError():
            return Refusal(422, errors.InvalidInput.code, _first_complaint(error))
        case AnyHTTPException():
            code, message, hint = PLAIN.get(error.status_code, PLAIN[400])
            return Refusal(error.status_code, code, message, hint, error.headers)
    return Refusal(
        *(500, "internal_error", _WRONG_HERE),
        for_the_log=f"{type(error).__name__}: {error}",
    )


def _of_faultline(error: errors.FaultlineError) -> Refusal:
    if words := DISCREET.get(type(error)):
        return Refusal(503, error.code, *words, headers=_RETRY_SOON, for_the_log=str(error))
    for kind, status in STATUSES.items():
        if isinstance(error, kind):
            message = error.message
            if isinstance(error, errors.IdempotencyConflict) and error.job_id:
                message += f" (job {error.job_id})"
            return Refusal(status, error.code, message, error.hint)
    return Refusal(500, error.code, _WRONG_HERE, for_the_log=str(error))


def _of_driver(error: DriverError) -> Refusal:
    state = error.sqlstate or ""
    if state == "55P03":
        return Refusal(503, "locked", "another transaction holds it", "try again", _RETRY_SOON)
    if state == "57014":
        return late()
    if is_serialization_conflict(error):
        message = "others changed the same jobs at the same time; nothing was written"
        return Refusal(503, "conflicting_writes", message, "try again", _RETRY_SOON)
    if state[:2] in ("22", "54"):  # data that cannot be stored, a limit of the server's
        said = error.diag.message_primary or "the database cannot store this"
        return Refusal(422, errors.InvalidInput.code, said)
    if is_connection_lost(error):
        said = " ".join(str(error).split())
        return _of_faultline(errors.DatabaseUnavailable(f"the session was lost: {said}"))
    return _of_faultline(explain_error(error))


def late() -> Refusal:
    return Refusal(
        503, "database_timeout", "the database did not answer in time", _SEND_AGAIN, _RETRY_SOON
    )


def overloaded(message: str) -> Refusal:
    return Refusal(503, "overloaded", message, "try again", _RETRY_SOON)


def _first_complaint(error: RequestValidationError | ValidationError) -> str:
    complaint = error.errors()[0]
    where = [str(part)[:_LONGEST_NAME] for part in complaint["loc"]]
    named = ".".join(where[1:] if where[:1] in (["body"], ["query"], ["path"]) else where)
    match complaint["type"]:
        case "extra_forbidden":
            return f"{named!r} is not known here"
        case "missing":
            return f"{named!r} is missing" if named else "the body is missing"
    said = str(complaint["msg"])
    return f"{named}: {said}" if named else f"the body: {said}"
