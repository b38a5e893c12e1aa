"""Runs an application in uvicorn until a signal, with every limit on its clients in one place."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from faultline.errors import PortUnavailable
from faultline.serving.limits import ACCEPTED_AT_ONCE, ServerLimits
from faultline.serving.protocol import bounded_protocol
from faultline.termination import Termination

# h11 is the parser that bounds what it holds of unfinished headers; a little above our own limit, so
# that what is a little too long is refused in our own words.
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
            # A second SIGINT: requests are cut off, which is no error, and the application still ends.
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
    """Until SIGTERM or SIGINT. `on_bound` is told the address as soon as connections are accepted;
    `on_stop` ends what has no end of its own, such as streams."""
    _errors.setLevel(logging.ERROR)  # not every mistake of a client's
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
            hint="is something else listening there? --port takes another, 0 any that is free",
        ) from None
    listener.set_inheritable(False)
    return listener
