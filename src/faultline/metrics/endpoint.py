"""An HTTP endpoint for Prometheus, in a thread of its own."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from faultline.errors import InvalidSettings, PortUnavailable
from faultline.events import log
from faultline.metrics.http_server import MetricsRequest, MetricsResponse, MetricsServer, listen

TOKEN_VARIABLE = "FAULTLINE_METRICS_TOKEN"  # noqa: S105 - the name of a variable
_SHORTEST_TOKEN, _LONGEST_TOKEN = 16, 1000
_UNAUTHORIZED = MetricsResponse(
    401,
    b"a bearer token is required\n",
    (("Content-Type", "text/plain"), ("WWW-Authenticate", "Bearer")),
)
_METHODS = MetricsResponse(
    405, b"GET or HEAD\n", (("Content-Type", "text/plain"), ("Allow", "GET, HEAD"))
)


class Endpoint:
    """Serves the registry's metrics from its creation until the context is left."""

    def __init__(
        self, registry: CollectorRegistry, *, host: str, port: int, token: str | None = None
    ) -> None:
        try:
            listener = listen(host, port)
        except (OSError, OverflowError) as error:
            raise PortUnavailable(
                f"cannot serve metrics on {host}:{port}: {error}",
                hint="another worker may use it: give each a --metrics-port of its own, or 0 for none",
            ) from None
        self._app = make_wsgi_app(registry)
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._server = MetricsServer(listener, self._respond)
        self._server.__enter__()
        if log.is_text:
            where = f"[{host}]" if ":" in host else host
            log.line("info", f"metrics are served on http://{where}:{port}/metrics", {})

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def _respond(self, request: MetricsRequest) -> MetricsResponse:
        if request.method not in ("GET", "HEAD"):
            return _METHODS
        presented = request.headers.get("authorization", "").encode("latin-1")
        if self._expected is not None and not hmac.compare_digest(presented, self._expected):
            return _UNAUTHORIZED
        return self._page(request)

    def _page(self, request: MetricsRequest) -> MetricsResponse:
        """Rendered by prometheus_client, which handles formats and filters."""
        response: dict[str, Any] = {}

        def start_response(status: str, headers: Iterable[tuple[str, str]], *rest: Any) -> None:
            response.update(status=int(status.split()[0]), headers=tuple(headers))

        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "HTTP_ACCEPT": request.headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        body = b"".join(self._app(environ, start_response))
        return MetricsResponse(response["status"], body, response["headers"])


def read_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The scraper's token, from a file or the environment; None: none is needed.

    Never from the command line, which every account on the machine can read.
    """
    if file is not None:
        try:
            token = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSettings(f"cannot read the metrics token from {file}: {error}") from None
        where = str(file)
    else:
        token, where = environment.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE
        if not token:
            return None
    is_plain = token.isascii() and token.isprintable() and " " not in token
    if not is_plain or not _SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN:
        raise InvalidSettings(
            f"the metrics token in {where} is not {_SHORTEST_TOKEN} to {_LONGEST_TOKEN} ASCII"
            " characters without spaces",
            hint="make one: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    return token
