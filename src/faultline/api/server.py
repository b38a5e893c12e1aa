"""The server: uvicorn with every wait of a client's bounded, and an end that is not a crash."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from faultline.api.settings import ApiSettings
from faultline.errors import PortUnavailable

# h11 is the parser that bounds what it holds of unfinished headers; a little above our own limit, so
# that what is a little too long is refused in our own words.
_SPARE_BYTES = 64 * 1024


def serve(api: FastAPI, settings: ApiSettings, *, on_bound: Callable[[str], None]) -> None:
    """Until SIGTERM or SIGINT. `on_bound` hears the address as soon as connections are accepted."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not every mistake of a client's
    listener = _bind(settings.host, settings.port)
    config = uvicorn.Config(
        api,
        http=_bounded_protocol(settings.header_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=settings.header_bytes + _SPARE_BYTES,
        limit_concurrency=settings.client_connections,
        timeout_keep_alive=math.ceil(settings.idle_seconds),
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
    )
    # uvicorn handles these itself, and afterwards raises them again for whoever was there before it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    host, port = listener.getsockname()[:2]
    on_bound(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    uvicorn.Server(config).run(sockets=[listener])


def _bind(host: str, port: int) -> socket.socket:
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise PortUnavailable(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            hint="is something else listening there? --port takes another",
        ) from None
    listener.set_inheritable(False)
    return listener


def _bounded_protocol(header_seconds: float) -> type[H11Protocol]:
    class BoundedProtocol(H11Protocol):
        """Hangs up on a connection that does not finish sending its headers."""

        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            is_idle = self.cycle is None or self.cycle.response_complete
            if not is_idle:
                self._stop_waiting()
            elif self._waiting is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(header_seconds, self._hang_up)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _hang_up(self) -> None:
            self._waiting = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return BoundedProtocol
