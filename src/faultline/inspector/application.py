"""The inspector's ASGI application: its endpoints, and the dashboard's files."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from faultline.errors import FaultlineError
from faultline.inspector import (
    actions,
    read_endpoints,
    responses,
    security_middleware,
    stream,
)
from faultline.inspector.inspector_settings import WEB, InspectorSettings
from faultline.inspector.security_middleware import SecurityMiddleware
from faultline.inspector.services import InspectorServices, Shared, make_services
from faultline.serving.client import is_secure

pages = APIRouter()


@pages.get("/")
async def dashboard(request: Request, shared: Shared) -> Response:
    if not (WEB / "index.html").is_file():
        return responses.error(
            404, "no_dashboard", "this installation has no dashboard", "see /api/overview"
        )
    response = FileResponse(WEB / "index.html")
    is_open = not shared.settings.mounted  # a host application checks the origin instead
    if is_open and not shared.tokens.is_ours(request.cookies.get(security_middleware.COOKIE, "")):
        # Not HttpOnly: the page reads the cookie to send it as a header.
        response.set_cookie(
            security_middleware.COOKIE,
            shared.tokens.issue(),
            samesite="strict",
            secure=is_secure(request.scope, behind_proxy=shared.settings.behind_proxy),
        )
    return response


def make_app(
    settings: InspectorSettings, services: InspectorServices | None = None
) -> SecurityMiddleware:
    shared = services or make_services(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await shared.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.services = shared
    for router in (read_endpoints.router, stream.router, actions.router, pages):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=WEB, check_dir=False), name="static")
    app.add_exception_handler(responses.InspectorError, responses.inspector_error)
    app.add_exception_handler(FaultlineError, responses.faultline_error)
    app.add_exception_handler(RequestValidationError, responses.invalid_request)
    app.add_exception_handler(HTTPException, responses.http_error)
    app.add_exception_handler(Exception, responses.unexpected_error)
    names = None if settings.mounted else (settings.host, *settings.allowed_hosts)
    return SecurityMiddleware(app, allowed_hosts=names)
