"""The application: endpoints, gate and sessions put together. What a server serves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from faultline.api import audit, identity, jobs, probes, queues
from faultline.api.document import describe
from faultline.api.gate import Gate, report
from faultline.api.keyring import Keyring
from faultline.api.pulse import Pulse
from faultline.api.rates import Rates
from faultline.api.refusals import refusal_of
from faultline.api.refused_access import RefusedAccesses
from faultline.api.route import GuardedRoute
from faultline.api.sessions import Sessions
from faultline.api.settings import ApiSettings
from faultline.api.throttle import Throttle
from faultline.api.visit import Service
from faultline.app import Faultline
from faultline.errors import FaultlineError
from faultline.metrics import Part, meter
from faultline.postgres.driver import DriverError
from faultline.statements import keys, protocol
from faultline.statements.statement import Statement

ROUTERS = (jobs.router, queues.router, identity.router, audit.router, probes.router)
_LONGEST_PULSE_SECONDS = 2.0


def create_api(
    url: str, settings: ApiSettings | None = None, *, app: Faultline | None = None
) -> FastAPI:
    """The API on the database at `url`. With an application, tasks that it does not know are refused."""
    chosen = settings or ApiSettings()

    @contextlib.asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        service = _service(url, chosen, app)
        api.state.service = service
        was_on = meter.current.is_on
        meter.switch_on(Part.API, Part.PRODUCER)
        try:
            yield
        finally:
            await service.refused.close()
            await service.sessions.close()
            await service.pulse.close()
            if not was_on:  # whatever else this process does is not ours to count
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
        api.add_exception_handler(kind, _refuse)
    api.add_middleware(Gate, settings=chosen)
    api.openapi = lambda: describe(api, chosen)  # type: ignore[method-assign]
    return api


def _service(url: str, settings: ApiSettings, app: Faultline | None) -> Service:
    pulse = Pulse(
        url,
        seconds=min(_LONGEST_PULSE_SECONDS, settings.request_seconds),
        says=_said_by_an_enqueue(settings),
    )
    sessions = Sessions(
        url, pulse, connections=settings.connections, seconds=settings.request_seconds
    )

    async def record(statement: Statement[Any]) -> Any:
        deadline = time.monotonic() + settings.request_seconds
        return await sessions.run(statement, deadline=deadline)

    return Service(
        settings=settings,
        pulse=pulse,
        sessions=sessions,
        throttle=Throttle(settings.wrong_keys_per_second, settings.wrong_key_burst),
        refused=RefusedAccesses(record),
        keyring=Keyring(cache_seconds=settings.key_cache_seconds),
        rates=Rates(settings.requests_per_second, settings.burst),
        app=app,
    )


def _said_by_an_enqueue(settings: ApiSettings) -> list[Statement[Any]]:
    job = protocol.enqueue_many("any", [{}], queue="any", priority=5, max_attempts=1)
    return [keys.find("any"), job] if settings.require_keys else [job]


async def _refuse(request: Request, error: Exception) -> Response:
    """What is not foreseen here, the gate refuses."""
    report(error, request.state.request_id)
    refusal = refusal_of(error)
    response = refusal.response
    if refusal.status_code == 405:  # Starlette names only the methods of the first route that fits
        response.headers["Allow"] = ", ".join(sorted(_methods_at(request.scope["path"])))
    return response


def _methods_at(path: str) -> set[str]:
    return {
        method
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, GuardedRoute) and route.path_regex.match(path)
        for method in route.methods or ()
    }
