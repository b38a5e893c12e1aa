"""The gate: what every request passes, whatever it asks for. How many, how long, how large, and out."""

from __future__ import annotations

import secrets
import time
import traceback
from typing import Any

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from faultline.api.refusals import Refusal, overloaded, refusal_of
from faultline.api.settings import ApiSettings
from faultline.errors import DatabaseUnavailable
from faultline.events import Event, emit
from faultline.metrics import record_request
from faultline.redaction import without_passwords
from faultline.serving.protocol import has_two_lengths

# Probes are let through when the house is full: a busy server is not a dead one.
PROBES = frozenset({"/health", "/ready"})
_LONGEST_TRACEBACK = 4000
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class Gate:
    def __init__(self, app: ASGIApp, *, settings: ApiSettings) -> None:
        self._app, self._settings = app, settings
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = Passage(scope, send, self._settings)
        is_counted = scope["path"] not in PROBES
        self._under_way += is_counted
        try:
            if is_counted and self._under_way > self._settings.concurrent_requests:
                raise overloaded(f"{self._settings.concurrent_requests} requests are under way")
            passage.require_short_headers()
            passage.require_one_length()
            await self._app(scope, receive, passage.send)
        except Exception as error:
            await passage.refuse(error, receive)
        finally:
            self._under_way -= is_counted
            passage.end()


class Passage:
    """One request on its way through."""

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
            raise Refusal(
                431,
                "headers_too_large",
                f"the address and headers are longer than {self._settings.header_bytes:,} bytes",
            )

    def require_one_length(self) -> None:
        if has_two_lengths(Headers(scope=self._scope)):
            raise Refusal(
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
        """Only what no handler of the application's has answered comes here."""
        report(error, self._id)
        if not self._status:
            await refusal_of(error).response(self._scope, receive, self.send)

    def end(self) -> None:
        route = self._scope.get("route")
        record_request(
            method=self._scope["method"],
            route=route.path_format if isinstance(route, APIRoute) else "unmatched",
            status=self._status or 500,
            seconds=time.monotonic() - self._began,
        )


def report(error: Exception, request_id: str) -> None:
    """Say in the log what the client is not told. That the database is away, the pulse says once."""
    refusal = refusal_of(error)
    if refusal.for_the_log is None or refusal.code == DatabaseUnavailable.code:
        return
    error_text = without_passwords(refusal.for_the_log)
    said = {"code": refusal.code, "error": error_text, "request": request_id}
    if refusal.code == "internal_error":
        trace = without_passwords("".join(traceback.format_exception(error)))
        said["traceback"] = trace[-_LONGEST_TRACEBACK:]
    emit(Event.DEGRADED, purpose="api", **said)
