"""The inspector as a process that serves until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from faultline.errors import PortUnavailable
from faultline.inspector.app import make_app
from faultline.inspector.broadcast import Broadcast
from faultline.inspector.services import make_services
from faultline.inspector.settings import InspectorSettings
from faultline.termination import Termination

MAX_CONNECTIONS = 500
GRACE_SECONDS = 5
LARGEST_HEAD_BYTES = 32 * 1024


class _Server(uvicorn.Server):
    """A stream has no end of its own: it is ended when the process is told to stop."""

    def __init__(self, config: uvicorn.Config, broadcast: Broadcast) -> None:
        super().__init__(config)
        self._broadcast = broadcast

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._broadcast.close()
        await super().shutdown(sockets)


def serve(
    settings: InspectorSettings, *, on_listening: Callable[[str], None], termination: Termination
) -> None:
    """Until SIGTERM or SIGINT. `on_listening` is told the address, whose port may have been 0."""
    services = make_services(settings)
    config = uvicorn.Config(
        make_app(settings, services),
        http="h11",  # the parser that bounds the headers it holds
        h11_max_incomplete_event_size=LARGEST_HEAD_BYTES,
        log_config=None,
        access_log=False,
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    with _listen(settings.host, settings.port) as listener:
        host, port = listener.getsockname()[:2]
        on_listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        termination.serve(_Server(config, services.broadcast), listener)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=128)
    except OSError as error:
        raise PortUnavailable(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="--port with another number; 0 for any that is free",
        ) from None
