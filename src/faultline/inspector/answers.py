"""Answers in JSON, and errors with a stable code and what to do about them."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from faultline import errors

_STATUSES: dict[type[errors.FaultlineError], int] = {
    errors.DatabaseUnavailable: 503,
    errors.DatabaseRefused: 503,
    errors.SchemaMismatch: 503,
    errors.UnknownJob: 404,
    errors.InvalidInput: 422,
}
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dump(content)


def dump(content: Any) -> bytes:
    return orjson.dumps(content, default=str)


def error(status: int, code: str, message: str, hint: str | None = None, **headers: str) -> Json:
    return Json(
        {"error": {"code": code, "message": message, "hint": hint}},
        status_code=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


class Refusal(Exception):
    """An answer other than what was asked for, raised from wherever that is known."""

    def __init__(self, status: int, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.answer = error(status, code, message, hint)


async def refusal(request: Request, raised: Exception) -> Json:
    assert isinstance(raised, Refusal)  # noqa: S101 - registered for these alone
    return raised.answer


async def faultline_error(request: Request, raised: Exception) -> Json:
    assert isinstance(raised, errors.FaultlineError)  # noqa: S101 - registered for these alone
    status = next((_STATUSES[kind] for kind in type(raised).__mro__ if kind in _STATUSES), 500)
    told = request.app.state.services.discretion.told(raised)
    return error(status, raised.code, told.message, told.hint)


async def invalid_request(request: Request, raised: Exception) -> Json:
    assert isinstance(raised, RequestValidationError)  # noqa: S101 - registered for these alone
    first = raised.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return error(422, "invalid_input", f"{where}: {first['msg']}")


async def http_error(request: Request, raised: Exception) -> Json:
    assert isinstance(raised, HTTPException)  # noqa: S101 - registered for these alone
    code = _HTTP_CODES.get(raised.status_code, "http_error")
    return error(raised.status_code, code, str(raised.detail))


async def unexpected(request: Request, raised: Exception) -> Json:
    """What went wrong is in the log; a client learns that something did."""
    return error(500, "internal_error", "the inspector failed", "see its log")
