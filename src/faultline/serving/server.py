"""Runs an ASGI application in uvicorn until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from faultline.errors import PortUnavailable
from faultline.serving.limits import ACCEPTED_AT_ONCE, ServerLimits
from faultline.termination import Termination

# h11's bound on unfinished headers is a little above ours, so that the application refuses headers that
# are slightly too long, with a JSON error.
_SPARE_HEADER_BYTES = 64 * 1024

_errors = logging.getLogger("uvicorn.error")

Announce = Callable[[str], None]
Ending = Callable[[], Awaitable[Any]]


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_stop: Ending | None) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._on_stop is not None:
            await self._on_stop()
        await super().shutdown(sockets)
        if self.force_exit:
            # After a second SIGINT requests are aborted, which is no error. The application still shuts down.
            _errors.setLevel(logging.CRITICAL)
            await self.lifespan.shutdown()


def serve(
    app: ASGIApp,
    limits: ServerLimits,
    *,
    on_bound: Announce,
    termination: Termination,
    on_stop: Ending | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    `on_bound` gets the address as soon as the server accepts connections. `on_stop` ends responses that
    have no end of their own, such as event streams.
    """
    _errors.setLevel(logging.ERROR)  # no warnings about clients' mistakes
    listener = _bind(limits.host, limits.port)
    config = uvicorn.Config(
        app,
        http=bounded_protocol(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=limits.header_bytes + _SPARE_HEADER_BYTES,
        timeout_keep_alive=math.ceil(limits.idle_seconds),
        timeout_graceful_shutdown=math.ceil(limits.drain_seconds),
    )
    host, port = listener.getsockname()[:2]
    on_bound(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    with listener:
        termination.serve(_Server(config, on_stop), listener)


def _bind(host: str, port: int) -> socket.socket:
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.create_server(address[:2], family=family, backlog=ACCEPTED_AT_ONCE)
    except OSError as error:
        raise PortUnavailable(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            hint="another process may listen there: choose another --port, or 0 for any free one",
        ) from None
    listener.set_inheritable(False)
    return listener


_REASONS = {400: "Bad Request", 503: "Service Unavailable"}


class ClientConnection(Protocol):
    @property
    def address(self) -> str: ...

    def hang_up(self) -> None:
        """Close it at once; no request is in progress on it."""


class Connections:
    """The open connections, and the idle ones in the order in which they became idle."""

    def __init__(self, *, limit: int, per_address: int) -> None:
        self._limit, self._per_address = limit, per_address
        self._open: Counter[str] = Counter()
        self._waiting: dict[str, OrderedDict[ClientConnection, None]] = {}
        self._admitted: set[ClientConnection] = set()

    def __len__(self) -> int:
        return len(self._admitted)

    def admit(self, connection: ClientConnection) -> bool:
        """Whether it may stay open. Closes an idle connection if the limit is reached."""
        address = connection.address
        if self._open[address] >= self._per_address and not self._make_room(address):
            return False
        if len(self._admitted) >= self._limit and not self._make_room(self._largest_address()):
            return False
        self._admitted.add(connection)
        self._open[address] += 1
        self.wait(connection)
        return True

    def wait(self, connection: ClientConnection) -> None:
        """Mark it idle: no request is in progress on it."""
        if connection in self._admitted:
            waiting = self._waiting.setdefault(connection.address, OrderedDict())
            waiting.setdefault(connection)

    def busy(self, connection: ClientConnection) -> None:
        """Mark it busy: a request is in progress on it."""
        if waiting := self._waiting.get(connection.address):
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[connection.address]

    def leave(self, connection: ClientConnection) -> None:
        if connection not in self._admitted:
            return
        self._admitted.discard(connection)
        self.busy(connection)
        self._open[connection.address] -= 1
        if not self._open[connection.address]:
            del self._open[connection.address]

    def _largest_address(self) -> str | None:
        """Of the addresses with an idle connection, the one with most connections."""
        return max(self._waiting, key=lambda address: self._open[address], default=None)

    def _make_room(self, address: str | None) -> bool:
        waiting = self._waiting.get(address) if address is not None else None
        if not waiting:
            return False
        oldest = next(iter(waiting))
        self.leave(oldest)
        oldest.hang_up()
        return True


class Countdown:
    """Calls `act` after `seconds`, unless it is stopped before."""

    def __init__(self, seconds: float, act: Callable[[], object]) -> None:
        self._seconds, self._act = seconds, act
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Does nothing if it is already running."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self._act()


def refusal(status: int, code: str, message: str, hint: str | None = None) -> bytes:
    """A whole HTTP response, for a request that does not reach the application."""
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
    """uvicorn's HTTP protocol with limits on connections and waits for clients.

    An idle connection costs as much as a busy one. When the limit of connections is reached, the protocol
    closes the connection that has been idle longest, of the address that has most connections.
    """
    connections = Connections(
        limit=limits.affordable_connections, per_address=limits.connections_per_address
    )

    class BoundedProtocol(H11Protocol):
        """Closes connections whose client does not send headers or read its response."""

        _is_refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._headers_due = Countdown(limits.header_seconds, self._close_idle)
            # close() would wait until everything is sent.
            self._response_due = Countdown(limits.send_seconds, transport.abort)
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
            self._response_due.start()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._response_due.stop()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.leave(self)
            self._headers_due.stop()
            self._response_due.stop()
            super().connection_lost(exc)

        @property
        def _is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _close_idle(self) -> None:
            if self._is_idle:
                self.transport.close()

    return BoundedProtocol


def has_two_lengths(headers: Any) -> bool:
    """Whether a request has both Content-Length and Transfer-Encoding.

    A proxy in front may have used the other one, so that the next bytes may be a smuggled request.
    """
    return "content-length" in headers and "transfer-encoding" in headers
