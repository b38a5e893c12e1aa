"""Middleware for every request: limits, deadline, id, response headers, metrics."""

from __future__ import annotations

import secrets
import time
import traceback
from typing import Any

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from faultline.api.api_errors import ApiError, api_error_of, overloaded
from faultline.api.api_settings import ApiSettings
from faultline.errors import DatabaseUnavailable
from faultline.events import Event, emit
from faultline.metrics import record_request
from faultline.serving.host_access import local_path
from faultline.serving.server import has_two_lengths
from faultline.wording import without_passwords

# Probes bypass the concurrency limit: a busy server must not look dead.
PROBES = frozenset({"/health", "/ready"})
_MAX_TRACEBACK = 4000
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class LimitMiddleware:
    def __init__(self, app: ASGIApp, *, settings: ApiSettings) -> None:
        self._app, self._settings = app, settings
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tracked = TrackedRequest(scope, send, self._settings)
        is_counted = local_path(scope) not in PROBES
        self._in_progress += is_counted
        try:
            if is_counted and self._in_progress > self._settings.concurrent_requests:
                raise overloaded(f"{self._settings.concurrent_requests} requests are in progress")
            tracked.require_short_headers()
            tracked.require_one_length()
            await self._app(scope, receive, tracked.send)
        except Exception as error:
            await tracked.refuse(error, receive)
        finally:
            self._in_progress -= is_counted
            tracked.end()


class TrackedRequest:
    """One request: its id, deadline, status and duration."""

    def __init__(self, scope: Scope, send: Send, settings: ApiSettings) -> None:
        self._scope, self._send, self._settings = scope, send, settings
        self._began = time.monotonic()
        self._status = 0
        self._id = secrets.token_hex(8)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["deadline"] = self._began + settings.request_seconds
        state["request_id"] = self._id

    def require_short_headers(self) -> None:
        length = len(self._scope.get("raw_path") or b"") + len(self._scope["query_string"])
        length += sum(len(name) + len(value) + 4 for name, value in self._scope["headers"])
        if length > self._settings.header_bytes:
            raise ApiError(
                431,
                "headers_too_large",
                f"the request line and headers are longer than {self._settings.header_bytes:,} bytes",
            )

    def require_one_length(self) -> None:
        if has_two_lengths(Headers(scope=self._scope)):
            raise ApiError(
                400,
                "ambiguous_length",
                "the request has both Content-Length and Transfer-Encoding",
                "send one of them",
                {"Connection": "close"},
            )

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [*message.get("headers", ()), *_ALWAYS, (b"x-request-id", self._id.encode())]
            if not self._settings.require_keys:
                headers.append((b"x-faultline-insecure", b"no keys"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, error: Exception, receive: Receive) -> None:
        """Answer an error that no exception handler of the application has handled."""
        log_error(error, self._id)
        if not self._status:
            await api_error_of(error).response(self._scope, receive, self.send)

    def end(self) -> None:
        route = self._scope.get("route")
        record_request(
            method=self._scope["method"],
            route=route.path_format if isinstance(route, APIRoute) else "unmatched",
            status=self._status or 500,
            seconds=time.monotonic() - self._began,
        )


def log_error(error: Exception, request_id: str) -> None:
    """Log what the client does not see. DatabaseCheck logs outages, once each."""
    shown = api_error_of(error)
    if shown.for_the_log is None or shown.code == DatabaseUnavailable.code:
        return
    error_text = without_passwords(shown.for_the_log)
    fields = {"code": shown.code, "error": error_text, "request": request_id}
    if shown.code == "internal_error":
        trace = without_passwords("".join(traceback.format_exception(error)))
        fields["traceback"] = trace[-_MAX_TRACEBACK:]
    emit(Event.DEGRADED, purpose="api", **fields)
