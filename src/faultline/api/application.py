"""The API's ASGI application: endpoints, middleware and shared services."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from faultline.api import (
    job_endpoints,
    limit_endpoints,
    many_job_endpoints,
    queue_endpoints,
    schedule_endpoints,
    service_endpoints,
)
from faultline.api.api_errors import api_error_of
from faultline.api.api_settings import ApiSettings
from faultline.api.authentication import KeyAuthenticator
from faultline.api.database_check import DatabaseCheck
from faultline.api.limit_middleware import LimitMiddleware, log_error
from faultline.api.openapi import describe
from faultline.api.rate_limits import RateLimiter, WrongKeyLimiter
from faultline.api.refused_access import RefusedAccessLog
from faultline.api.request_context import ApiServices
from faultline.api.routing import AuthorizedRoute
from faultline.api.session_pool import SessionPool
from faultline.app import Faultline
from faultline.errors import FaultlineError
from faultline.metrics import Part, meter
from faultline.postgres.driver import DriverError
from faultline.result_waiters import JobWatcher
from faultline.serving.host_access import local_path
from faultline.statements import keys, protocol
from faultline.statements.statement import Statement

ROUTERS = (
    job_endpoints.router,
    many_job_endpoints.router,
    queue_endpoints.router,
    schedule_endpoints.router,
    limit_endpoints.router,
    service_endpoints.router,
)
_MAX_CHECK_SECONDS = 2.0


def create_api(
    url: str,
    settings: ApiSettings | None = None,
    *,
    app: Faultline | None = None,
    trusts_host: bool = False,
) -> FastAPI:
    """The API on the database at `url`.

    With `app`, it refuses tasks that the application does not have. With `trusts_host` it asks for no keys:
    a host application names the caller of each request; see `faultline.serving.host_access`.
    """
    chosen = settings or ApiSettings()

    @contextlib.asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        services = _services(url, chosen, app, trusts_host=trusts_host)
        api.state.services = services
        was_on = meter.current.is_on
        meter.switch_on(Part.API, Part.PRODUCER)
        try:
            yield
        finally:
            await asyncio.to_thread(services.watcher.close)
            await services.refused.close()
            await services.sessions.close()
            await services.database.close()
            if not was_on:  # the process may do other things that it does not count
                meter.switch_off()

    api = FastAPI(
        lifespan=lifespan,
        openapi_url=None,
        generate_unique_id_function=lambda route: route.name,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in ROUTERS:
        api.include_router(router)
    for kind in (
        FaultlineError,
        DriverError,
        HTTPException,
        RequestValidationError,
        ValidationError,
    ):
        api.add_exception_handler(kind, _error_response)
    api.add_middleware(LimitMiddleware, settings=chosen)
    api.openapi = lambda: describe(api, chosen, with_keys=not trusts_host)  # type: ignore[method-assign]
    return api


async def end_waits(api: FastAPI) -> None:
    """End the requests that wait for jobs, when the server stops."""
    services: ApiServices | None = getattr(api.state, "services", None)
    if services is not None:
        await asyncio.to_thread(services.watcher.close)


def _services(
    url: str, settings: ApiSettings, app: Faultline | None, *, trusts_host: bool
) -> ApiServices:
    database = DatabaseCheck(
        url,
        seconds=min(_MAX_CHECK_SECONDS, settings.request_seconds),
        enqueue_statements=_enqueue_statements(with_keys=settings.require_keys and not trusts_host),
    )
    sessions = SessionPool(
        url, database, connections=settings.connections, seconds=settings.request_seconds
    )

    async def record(statement: Statement[Any]) -> Any:
        deadline = time.monotonic() + settings.request_seconds
        return await sessions.run(statement, deadline=deadline)

    return ApiServices(
        settings=settings,
        database=database,
        sessions=sessions,
        authenticator=KeyAuthenticator(cache_seconds=settings.key_cache_seconds),
        key_rates=RateLimiter(settings.requests_per_second, settings.burst),
        wrong_keys=WrongKeyLimiter(settings.wrong_keys_per_second, settings.wrong_key_burst),
        refused=RefusedAccessLog(record),
        watcher=JobWatcher(url),
        wait_slots=asyncio.Semaphore(max(1, settings.concurrent_requests // 2)),
        app=app,
        trusts_host=trusts_host,
    )


def _enqueue_statements(*, with_keys: bool) -> list[Statement[Any]]:
    job = protocol.enqueue_many("any", [{}], queue="any", priority=5, max_attempts=1)
    return [keys.find("any"), job] if with_keys else [job]


async def _error_response(request: Request, error: Exception) -> Response:
    """The response for expected errors; LimitMiddleware answers all others."""
    log_error(error, request.state.request_id)
    shown = api_error_of(error)
    response = shown.response
    if shown.status_code == 405:  # Starlette names only the methods of the first route that matches
        response.headers["Allow"] = ", ".join(sorted(_methods_at(local_path(request.scope))))
    return response


def _methods_at(path: str) -> set[str]:
    return {
        method
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, AuthorizedRoute) and route.path_regex.match(path)
        for method in route.methods or ()
    }
