"""Runs an ASGI application in uvicorn until SIGTERM or SIGINT."""

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
