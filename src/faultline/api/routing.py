"""Routes that check the access they declare, and bound the request's body."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from faultline.api.api_errors import ApiError, invalid_request
from faultline.api.request_context import Access, RequestContext
from faultline.payload import DuplicateKey, parse_json
from faultline.serving.client import address_of

ACCESS = "x-faultline-access"
_CLOSE = {"Connection": "close"}  # the rest of the body is not read


def needs(access: Access, **extra: Any) -> dict[str, Any]:
    """`openapi_extra` of a route: the documented access is the one that is checked."""
    security: list[dict[str, list[str]]] = (
        [] if access is Access.OPEN else [{"key": []}, {"key_header": []}]
    )
    return {ACCESS: access.value, "security": security, **extra}


class AuthorizedRoute(APIRoute):
    """Checks the declared access; a route without a declaration cannot be made."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        access = Access((self.openapi_extra or {})[ACCESS])
        query_names = [name for each in self.dependant.query_params for name in _names_of(each)]
        body = None if self.body_field is None else self.body_field.field_info.annotation
        is_action = access is Access.OPERATE and "GET" not in (self.methods or ())

        async def authorized(request: Request) -> Response:
            services = request.app.state.services
            address = address_of(request.scope, behind_proxy=services.settings.behind_proxy)
            context = RequestContext(services, deadline=request.state.deadline, address=address)
            request.state.context = context
            try:
                await context.authorize(request, access)
                bounded = BoundedRequest(request.scope, request.receive)
                limit = services.settings.body_bytes
                return await handle(bounded.bound(body_bytes=limit, deadline=context.deadline))
            except RequestValidationError as error:
                refusal = invalid_request(error, query_names, body)
                if is_action:
                    context.note_refused_action(request, refusal)
                raise refusal from None
            except Exception as error:
                if is_action:
                    context.note_refused_action(request, error)
                raise

        return authorized


def _names_of(parameter: Any) -> Iterable[str]:
    """The names in the query string that a parameter of an endpoint stands for."""
    kind = parameter.field_info.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_fields
    return (parameter.alias,)


class BoundedRequest(Request):
    """A request whose JSON body is limited in length and time, and has each name once."""

    def bound(self, *, body_bytes: int, deadline: float) -> BoundedRequest:
        self._max_bytes, self._deadline = body_bytes, deadline
        return self

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self._read()
        return self._body

    async def json(self) -> Any:
        return _parse(await self.body())

    async def _read(self) -> bytes:
        """Refuses a body by its Content-Length, or as soon as it is too long."""
        announced = self.headers.get("content-length", "")
        if announced.isascii() and announced.isdecimal() and int(announced[:20]) > self._max_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(max(self._deadline - time.monotonic(), 0.0)):
                async for chunk in self.stream():
                    body += chunk
                    if len(body) > self._max_bytes:
                        raise self._too_large()
        except TimeoutError:
            raise ApiError(
                408, "request_timeout", "the body did not arrive in time", headers=_CLOSE
            ) from None
        if body:
            self._require_json()
        return bytes(body)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            "body_too_large",
            f"the body is longer than {self._max_bytes:,} bytes",
            "send fewer jobs at once, or store the data elsewhere and put its key in the job",
            _CLOSE,
        )

    def _require_json(self) -> None:
        """Browsers do not let foreign web pages send this type without a preflight."""
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise ApiError(
                415,
                "unsupported_media_type",
                "the body must be JSON",
                "Content-Type: application/json",
            )


def _parse(body: bytes) -> Any:
    try:
        return parse_json(body.decode())
    except DuplicateKey as error:
        raise ApiError(
            422, "duplicate_key", f"the body is ambiguous: {error}", "send each name once"
        ) from None
    except ValueError as error:
        raise ApiError(422, "invalid_json", f"the body is not JSON: {error}") from None
