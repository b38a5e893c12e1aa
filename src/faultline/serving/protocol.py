"""uvicorn's HTTP protocol with a bound on every wait for a client, and refusals in our own shape."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from faultline.serving.connections import Connections
from faultline.serving.limits import ServerLimits

_REASONS = {400: "Bad Request", 503: "Service Unavailable"}


class Countdown:
    """Calls `act` after so many seconds, unless it is stopped before."""

    def __init__(self, seconds: float, act: Callable[[], object]) -> None:
        self._seconds, self._act = seconds, act
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """One that runs is left as it is."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._run_down)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_down(self) -> None:
        self._timer = None
        self._act()


def refusal(status: int, code: str, message: str, hint: str | None = None) -> bytes:
    """A whole HTTP response, for a client whose request no application will see."""
    body = orjson.dumps({"error": {"code": code, "message": message, "hint": hint}})
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        *(["retry-after: 1"] if status == 503 else []),
        "connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def bounded_protocol(limits: ServerLimits) -> type[H11Protocol]:
    connections = Connections(
        limit=limits.affordable_connections, per_address=limits.connections_per_address
    )

    class BoundedProtocol(H11Protocol):
        """Closes the connection of a client that does not send its headers or take its answer."""

        _is_refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._headers_due = Countdown(limits.header_seconds, self._give_up)
            # Closing would wait until all is sent.
            self._answer_due = Countdown(limits.send_seconds, transport.abort)
            if connections.admit(self):
                self._headers_due.start()
                return
            self._is_refused = True
            transport.write(
                refusal(503, "too_many_connections", "too many clients are connected", "try again")
            )
            transport.close()

        @property
        def address(self) -> str:
            return self.client[0] if self.client else ""

        def hang_up(self) -> None:
            self.transport.abort()

        def data_received(self, data: bytes) -> None:
            if self._is_refused:
                return
            super().data_received(data)
            if self._is_idle:
                self._headers_due.start()
            else:
                self._headers_due.stop()
                connections.busy(self)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self._is_idle:
                connections.wait(self)

        def send_400_response(self, msg: str) -> None:
            self.transport.write(refusal(400, "bad_request", "this is not an HTTP request"))
            self.transport.close()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._answer_due.start()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._answer_due.stop()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.leave(self)
            self._headers_due.stop()
            self._answer_due.stop()
            super().connection_lost(exc)

        @property
        def _is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _give_up(self) -> None:
            if self._is_idle:
                self.transport.close()

    return BoundedProtocol


def has_two_lengths(headers: Any) -> bool:
    """Whether a request says its length twice, by Content-Length and by Transfer-Encoding. A proxy in
    front may have believed the other one, so nothing after it on this connection can be trusted."""
    return "content-length" in headers and "transfer-encoding" in headers
