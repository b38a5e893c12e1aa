"""The server: uvicorn with every wait of a client's bounded, and an end that is not a crash."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from faultline.api.settings import ApiSettings
from faultline.errors import PortUnavailable
from faultline.termination import Termination

# h11 is the parser that bounds what it holds of unfinished headers; a little above our own limit, so
# that what is a little too long is refused in our own words.
_SPARE_BYTES = 64 * 1024


def serve(
    api: FastAPI,
    settings: ApiSettings,
    *,
    on_bound: Callable[[str], None],
    termination: Termination,
) -> None:
    """Until SIGTERM or SIGINT. `on_bound` hears the address as soon as connections are accepted."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not every mistake of a client's
    listener = _bind(settings.host, settings.port)
    config = uvicorn.Config(
        api,
        http=_bounded_protocol(settings),
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
    host, port = listener.getsockname()[:2]
    on_bound(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    termination.serve(uvicorn.Server(config), listener)


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


class Countdown:
    """Acts when it has run down, unless it is stopped before."""

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


def _bounded_protocol(settings: ApiSettings) -> type[H11Protocol]:
    class BoundedProtocol(H11Protocol):
        """Hangs up on whoever does not finish sending its headers, or does not take its answer."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._headers_due = Countdown(settings.header_seconds, self._hang_up)
            # Closing would wait until all is sent.
            self._answer_due = Countdown(settings.send_seconds, transport.abort)
            self._headers_due.start()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_idle:
                self._headers_due.start()
            else:
                self._headers_due.stop()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._answer_due.start()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._answer_due.stop()

        def connection_lost(self, exc: Exception | None) -> None:
            self._headers_due.stop()
            self._answer_due.stop()
            super().connection_lost(exc)

        @property
        def _is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _hang_up(self) -> None:
            if self._is_idle:
                self.transport.close()

    return BoundedProtocol
