"""An HTTP endpoint for Prometheus, in a thread of its own."""

from __future__ import annotations

import os
from types import TracebackType

from prometheus_client import CollectorRegistry, start_http_server

from faultline.errors import PortUnavailable


class Endpoint:
    """Serves what the registry collects, from when it is made until it is left."""

    def __init__(self, registry: CollectorRegistry, *, host: str, port: int) -> None:
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except (OSError, OverflowError) as error:
            raise PortUnavailable(
                f"cannot serve metrics on {host}:{port}: {error}",
                hint="is another worker there? give each a --metrics-port of its own, or 0 for none",
            ) from None
        if hasattr(os, "register_at_fork"):
            # A child that a handler forks would keep the port after this process has died.
            os.register_at_fork(after_in_child=self._server.socket.close)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)
