"""Enqueues as a FastAPI dependency, and mounts the API and the dashboard.

The host application decides who may do what, by a dependency that returns a `Caller`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, get_origin

from fastapi import APIRouter, Depends, Request, params
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from faultline import __version__
from faultline.adapters.starlette import MountedApplication, mounted_lifespan, worker_lifespan
from faultline.app import Faultline
from faultline.enqueueable import Enqueueable
from faultline.errors import InvalidInput
from faultline.model import Enqueued, JobSpec
from faultline.serving import host_access
from faultline.serving.host_access import Caller
from faultline.serving.in_process import InProcessClient
from faultline.serving.server_stop import before_server_stops
from faultline.user_connections import AsynchronousConnection

if TYPE_CHECKING:
    from fastapi import FastAPI

    from faultline.api.api_settings import ApiSettings

__all__ = [
    "Caller",
    "Enqueuer",
    "dashboard",
    "enqueuer",
    "mounted_lifespan",
    "producer_api",
    "worker_lifespan",
]

P = ParamSpec("P")

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


# ── enqueueing ───────────────────────────────────────────────────────────────────────────────────


class Enqueuer:
    """Enqueues jobs of a request, in its transaction if there is a connection."""

    def __init__(self, queue: Faultline, conn: AsynchronousConnection | None = None) -> None:
        self._queue, self._conn = queue, conn

    async def __call__(
        self, task: Enqueueable[P], /, *args: P.args, **kwargs: P.kwargs
    ) -> Enqueued:
        """Enqueue a job: `await enqueue(charge, invoice=42)`."""
        return await self._queue.enqueue_async(task.job(*args, **kwargs), conn=self._conn)

    async def many(self, jobs: Iterable[JobSpec]) -> list[Enqueued]:
        """Enqueue jobs that `task.job(…)` made, in one round trip: all of them or none."""
        return await self._queue.enqueue_many_async(jobs, conn=self._conn)


def enqueuer(queue: Faultline, *, conn: Any = None) -> Callable[..., Awaitable[Enqueuer]]:
    """A dependency that enqueues jobs.

    `Enqueue = Annotated[Enqueuer, Depends(enqueuer(queue))]` is the type of an endpoint's argument.

    `conn` is the dependency that gives a request its connection or session, as the endpoints use it: the
    function, its `Depends(…)`, or their `Annotated[…]` type. Jobs then exist if its transaction commits. In
    tests, replace what this function returns in `app.dependency_overrides`.
    """
    if conn is None:

        async def on_own_connections() -> Enqueuer:
            return Enqueuer(queue)

        return on_own_connections
    if get_origin(conn) is not Annotated:
        if not isinstance(conn, params.Depends) and not callable(conn):
            raise InvalidInput(
                f"conn is a {type(conn).__name__}, not a dependency",
                hint="enqueuer(queue, conn=get_session)",
            )
        marker = conn if isinstance(conn, params.Depends) else Depends(conn)
        conn = Annotated[Any, marker]

    async def on_connection(conn: Any) -> Enqueuer:
        return Enqueuer(queue, conn)

    # FastAPI reads it: the same annotation as the endpoints' gives the same connection.
    parameter = inspect.Parameter("conn", inspect.Parameter.KEYWORD_ONLY, annotation=conn)
    on_connection.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return on_connection


# ── the API and the dashboard ────────────────────────────────────────────────────────────────────


def producer_api(
    queue: Faultline,
    *,
    access: Callable[..., Caller | Awaitable[Caller]] | None = None,
    settings: ApiSettings | None = None,
) -> MountedApplication:
    """The HTTP API: `app.mount("/queue", producer_api(queue, access=caller))`.

    `access` is a dependency that returns the `Caller` of a request, or raises. Without it the API asks for
    Faultline's own keys.
    """

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[ASGIApp]:
        async with _api(queue, settings, trusts_host=access is not None) as api:
            yield api if access is None else _guarded(api, access)

    return MountedApplication(opened)


def dashboard(
    queue: Faultline,
    *,
    access: Callable[..., Caller | Awaitable[Caller]],
    actions: bool = True,
) -> MountedApplication:
    """The dashboard: `app.mount("/faultline", dashboard(queue, access=caller))`.

    `access` is a dependency that returns the `Caller` of a request, or raises. A caller needs the scope
    "read", and "operate" for actions, unless `actions` is false. The audit log shows the caller's name.
    """

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[ASGIApp]:
        from faultline.inspector.application import make_app
        from faultline.inspector.inspector_settings import InspectorSettings
        from faultline.inspector.services import make_services

        url = await asyncio.to_thread(lambda: queue.database_url)
        chosen = InspectorSettings(database_url=url, mounted=True, version=__version__)
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(_api(queue, None, trusts_host=True))
            services = make_services(chosen, InProcessClient(api) if actions else None)
            stack.push_async_callback(services.close)
            await stack.enter_async_context(before_server_stops(services.broadcast.close))
            yield _guarded(make_app(chosen, services), access, scope="read")

    return MountedApplication(opened)


@contextlib.asynccontextmanager
async def _api(
    queue: Faultline, settings: ApiSettings | None, *, trusts_host: bool
) -> AsyncIterator[FastAPI]:
    from faultline.api.application import create_api, end_waits

    url = await asyncio.to_thread(lambda: queue.database_url)  # it may start the embedded server
    await asyncio.to_thread(queue.import_tasks)
    api = create_api(url, settings, app=queue, trusts_host=trusts_host)
    async with (
        api.router.lifespan_context(api),
        before_server_stops(lambda: end_waits(api)),
    ):
        yield api


# ── authentication by the host ───────────────────────────────────────────────────────────────────


class _Overrides:
    """The `dependency_overrides` of the host, for the dependencies that `access` has."""

    dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}  # noqa: RUF012


def _guarded(
    application: ASGIApp, access: Callable[..., Any], *, scope: str | None = None
) -> ASGIApp:
    """Ask the dependency `access` before each request; the host handles its errors."""
    overrides = _Overrides()

    async def enter(request: Request, caller: Any = Depends(access)) -> Response:  # noqa: B008
        if not isinstance(caller, Caller):
            raise InvalidInput(
                f"access returned a {type(caller).__name__}",
                hint='return Caller(user.name, scopes={"read"}), or raise HTTPException',
            )
        if host_access.is_cross_origin_write(request.scope):
            raise HTTPException(403, "this request comes from a page of another origin")
        if scope is not None and not caller.may(scope):
            raise HTTPException(403, f"this needs the scope {scope}")
        return _Forwarded(application, caller)

    router = APIRouter(dependency_overrides_provider=overrides)
    router.add_api_route("/{path:path}", enter, methods=_METHODS, response_model=None)
    guard = AsyncExitStackMiddleware(router)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        host = scope.get("app")
        overrides.dependency_overrides = getattr(host, "dependency_overrides", {})
        await guard(scope, receive, send)

    return guarded


class _Forwarded(Response):
    """The response of a mounted application, which has a state of its own."""

    def __init__(self, application: ASGIApp, caller: Caller) -> None:
        super().__init__()
        self._application, self._caller = application, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = {**scope, "path_params": {}, "state": dict(scope.get("state", {}))}
        host_access.grant(own, self._caller)
        await self._application(own, receive, send)
