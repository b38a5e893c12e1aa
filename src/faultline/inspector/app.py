"""The inspector as an application: its endpoints, and the dashboard's files."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from faultline.errors import FaultlineError
from faultline.inspector import actions, answers, csrf, reads, stream
from faultline.inspector.guard import Guard
from faultline.inspector.services import Services, Shared, make_services
from faultline.inspector.settings import WEB, InspectorSettings
from faultline.serving.client import is_secure

pages = APIRouter()


@pages.get("/")
async def dashboard(request: Request, shared: Shared) -> Response:
    if not (WEB / "index.html").is_file():
        return answers.error(
            404, "no_dashboard", "this installation has no dashboard", "see /api/overview"
        )
    response = FileResponse(WEB / "index.html")
    if not shared.tokens.is_ours(request.cookies.get(csrf.COOKIE, "")):
        # Not HttpOnly: the page has to read it, to send it back as a header.
        response.set_cookie(
            csrf.COOKIE,
            shared.tokens.issue(),
            samesite="strict",
            secure=is_secure(request.scope, behind_proxy=shared.settings.behind_proxy),
        )
    return response


def make_app(settings: InspectorSettings, services: Services | None = None) -> Guard:
    shared = services or make_services(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await shared.broadcast.close()
        await shared.reader.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.services = shared
    for router in (reads.router, stream.router, actions.router, pages):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=WEB, check_dir=False), name="static")
    app.add_exception_handler(answers.Refusal, answers.refusal)
    app.add_exception_handler(FaultlineError, answers.faultline_error)
    app.add_exception_handler(RequestValidationError, answers.invalid_request)
    app.add_exception_handler(HTTPException, answers.http_error)
    app.add_exception_handler(Exception, answers.unexpected)
    return Guard(app, allowed_hosts=(settings.host, *settings.allowed_hosts))
