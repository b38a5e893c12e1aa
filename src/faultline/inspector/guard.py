"""What every answer carries so that a browser keeps to this origin, and which names we answer to."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from faultline.inspector.answers import Json, error

LARGEST_BODY_BYTES = 16 * 1024
BODY_SECONDS = 10.0
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Wraps the application. There is no login, so a page elsewhere must not reach us through a name of
    its own that it points at this machine: only addresses, localhost and names we were given are served.
    """

    def __init__(self, app: ASGIApp, *, allowed_hosts: Collection[str] = ()) -> None:
        self._app = app
        self._allowed = {"localhost", *(name.lower() for name in allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caching = "no-store" if scope["path"].startswith("/api/") else "no-cache"

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers["Cache-Control"] = caching
            await send(message)

        headers = Headers(scope=scope)
        answer: ASGIApp = self._refusal(headers) or self._app
        if answer is self._app and headers.get("content-length", "0") != "0":
            try:
                receive = await _whole_body(receive)
            except TimeoutError:
                what = "the body did not arrive in time"
                answer = error(408, "request_timeout", what, Connection="close")
        await answer(scope, receive, send_guarded)

    def _refusal(self, headers: Headers) -> Json | None:
        if not self._answers_to(headers.get("host", "")):
            what = "this inspector does not answer to that name"
            return error(421, "unknown_host", what, "--allow-host NAME")
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not _is_at_most(length, LARGEST_BODY_BYTES):
            what = f"a body has a Content-Length of at most {LARGEST_BODY_BYTES:,} bytes"
            return error(413, "body_too_large", what, Connection="close")
        return None

    def _answers_to(self, host: str) -> bool:
        name = host.lower()
        name = (
            name.partition("]")[0].removeprefix("[") if name[:1] == "[" else name.partition(":")[0]
        )
        if name in self._allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


async def _whole_body(receive: Receive) -> Receive:
    """Read the body, which is small, before the application waits for it without a limit."""
    body = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                break
            body += message.get("body", b"")
            if not message.get("more_body"):
                message = {"type": "http.request", "body": bytes(body), "more_body": False}
                break
    first = [message]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _is_at_most(length: str, most: int) -> bool:
    return length.isdecimal() and int(length) <= most
