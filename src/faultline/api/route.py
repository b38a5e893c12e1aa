"""A route that lets nobody in without asking: every endpoint says what it takes, or cannot be made."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from faultline.api.body import BoundedRequest
from faultline.api.visit import Access, Visit
from faultline.serving.client import address_of

ACCESS = "x-faultline-access"


def needs(access: Access, **extra: Any) -> dict[str, Any]:
    """For a route's `openapi_extra`: what is documented is what is asked for."""
    security: list[dict[str, list[str]]] = (
        [] if access is Access.OPEN else [{"key": []}, {"key_header": []}]
    )
    return {ACCESS: access.value, "security": security, **extra}


class GuardedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        access = Access((self.openapi_extra or {})[ACCESS])
        is_action = access is Access.OPERATE and "POST" in (self.methods or ())

        async def guarded(request: Request) -> Response:
            service = request.app.state.service
            address = address_of(request.scope, behind_proxy=service.settings.behind_proxy)
            visit = Visit(service, deadline=request.state.deadline, address=address)
            request.state.visit = visit
            try:
                await visit.admit(request, access)
                bounded = BoundedRequest(request.scope, request.receive)
                return await handle(
                    bounded.bound(body_bytes=service.settings.body_bytes, deadline=visit.deadline)
                )
            except Exception as error:
                if is_action:
                    visit.note_refused_action(request, error)
                raise

        return guarded
