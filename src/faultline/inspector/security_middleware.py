"""Middleware: checks the Host header, bounds bodies, sets security headers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from faultline.inspector.responses import Json, error
from faultline.serving.host_access import local_path

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


class SecurityMiddleware:
    """Serves IP addresses, localhost and allowed host names; refuses other names.

    The inspector has no login. The check stops DNS rebinding: a web page elsewhere that reaches this
    machine by a host name of its own. None as `allowed_hosts` leaves the check to a host application.
    """

    def __init__(self, app: ASGIApp, *, allowed_hosts: Collection[str] | None = ()) -> None:
        self._app = app
        self._allows_any_host = allowed_hosts is None
        self._allowed = {"localhost", *(name.lower() for name in allowed_hosts or ())}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caching = "no-store" if local_path(scope).startswith("/api/") else "no-cache"

        async def send_with_headers(message: Message) -> None:
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
                message = "the body did not arrive in time"
                answer = error(408, "request_timeout", message, Connection="close")
        await answer(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers) -> Json | None:
        if not self._is_allowed_host(headers.get("host", "")):
            message = "this inspector is not served under this host name"
            return error(421, "unknown_host", message, "--allow-host NAME")
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not _is_at_most(length, LARGEST_BODY_BYTES):
            message = f"a body needs a Content-Length of at most {LARGEST_BODY_BYTES:,} bytes"
            return error(413, "body_too_large", message, Connection="close")
        return None

    def _is_allowed_host(self, host: str) -> bool:
        name = host.lower()
        name = (
            name.partition("]")[0].removeprefix("[") if name[:1] == "[" else name.partition(":")[0]
        )
        if self._allows_any_host or name in self._allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


async def _whole_body(receive: Receive) -> Receive:
    """Read the small body within BODY_SECONDS; FastAPI would wait without a limit."""
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


COOKIE = "faultline_csrf"


HEADER = "X-Faultline-CSRF"


class CsrfTokens:
    """CSRF tokens: a cookie that only our page can read and send as a header.

    Tokens are signed, so that a cookie set by another site is refused. They are valid while this process
    runs; a page gets a new token when it is reloaded.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def issue(self) -> str:
        return self._signed(secrets.token_urlsafe(24))

    def is_ours(self, token: str) -> bool:
        nonce, _, _ = token.partition(".")
        return bool(nonce) and hmac.compare_digest(self._signed(nonce).encode(), token.encode())

    def agree(self, cookie: str, header: str) -> bool:
        return self.is_ours(cookie) and hmac.compare_digest(cookie.encode(), header.encode())

    def _signed(self, nonce: str) -> str:
        signature = hmac.new(self._secret, nonce.encode(), hashlib.sha256).hexdigest()
        return f"{nonce}.{signature}"
