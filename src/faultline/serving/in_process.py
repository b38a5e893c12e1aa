"""Requests to an ASGI application in this process, without a connection."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from faultline.serving.host_access import Caller, grant


class InProcessClient:
    """Sends requests of a host application's users to an API."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(
        self, method: str, path: str, caller: Caller, body: bytes | None, *, address: str
    ) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        sent: list[Message] = []
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [] if body is None else [(b"content-type", b"application/json")],
            "client": (address, 0),
            "server": None,
        }
        grant(scope, caller)

        async def receive() -> Message:
            return {"type": "http.request", "body": body or b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        return int(sent[0]["status"]), b"".join(each.get("body", b"") for each in sent[1:])
