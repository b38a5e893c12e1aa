"""The inspector as a process that serves until a signal."""

from __future__ import annotations

from collections.abc import Callable

from faultline.inspector.app import make_app
from faultline.inspector.reader import SESSIONS
from faultline.inspector.services import make_services
from faultline.inspector.settings import InspectorSettings
from faultline.serving.limits import ServerLimits
from faultline.serving.server import serve as serve_app
from faultline.termination import Termination

MAX_CONNECTIONS = 500
CONNECTIONS_PER_ADDRESS = 250
GRACE_SECONDS = 5
LARGEST_HEAD_BYTES = 32 * 1024


def serve(
    settings: InspectorSettings, *, on_listening: Callable[[str], None], termination: Termination
) -> None:
    """Until SIGTERM or SIGINT. `on_listening` is told the address, whose port may have been 0.

    A stream has no end of its own: it is ended when the process is told to stop.
    """
    services = make_services(settings)
    limits = ServerLimits(
        host=settings.host,
        port=settings.port,
        connections=MAX_CONNECTIONS,
        connections_per_address=max(CONNECTIONS_PER_ADDRESS, 2 * settings.streams_per_address),
        drain_seconds=GRACE_SECONDS,
        header_bytes=LARGEST_HEAD_BYTES,
        reserved_files=SESSIONS,
    )
    serve_app(
        make_app(settings, services),
        limits,
        on_bound=on_listening,
        on_stop=services.broadcast.close,
        termination=termination,
    )
