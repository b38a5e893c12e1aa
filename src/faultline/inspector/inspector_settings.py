"""Settings of the inspector, validated when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from faultline.errors import InvalidSettings
from faultline.serving.limits import ServerLimits, is_loopback

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8001
MAX_STREAMS = 100
STREAMS_PER_ADDRESS = 20
DATABASE_SESSIONS = 4
MAX_CONNECTIONS = 500
CONNECTIONS_PER_ADDRESS = 250
DRAIN_SECONDS = 5
WEB = Path(__file__).parent / "web"


@dataclass(frozen=True, kw_only=True)
class InspectorSettings:
    database_url: str = field(repr=False)  # it may hold a password
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    expose: bool = False
    allowed_hosts: tuple[str, ...] = ()
    api_url: str | None = None  # None: read-only, without actions
    reports: Path = Path("reports/latest")
    max_streams: int = MAX_STREAMS
    streams_per_address: int = STREAMS_PER_ADDRESS
    behind_proxy: bool = False  # whether to trust X-Forwarded-For and X-Forwarded-Proto
    mounted: bool = (
        False  # in an application that authenticates its users and checks the Host header
    )
    version: str | None = None  # of Faultline; the dashboard shows it

    @property
    def hides_details(self) -> bool:
        """Whether responses omit accounts, hosts and databases."""
        return self.expose

    @property
    def server_limits(self) -> ServerLimits:
        return ServerLimits(
            host=self.host,
            port=self.port,
            connections=MAX_CONNECTIONS,
            connections_per_address=max(CONNECTIONS_PER_ADDRESS, 2 * self.streams_per_address),
            drain_seconds=DRAIN_SECONDS,
            header_bytes=32 * 1024,
            reserved_files=DATABASE_SESSIONS,
        )

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.expose:
            raise InvalidSettings(
                f"the inspector has no login, and {self.host} can be reached from other machines",
                hint="--expose, if every client that reaches it may read all payloads; else --host 127.0.0.1",
            )
        if self.api_url is not None:
            parts = urlsplit(self.api_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
                raise InvalidSettings(
                    f"{self.api_url!r} is not the address of an API",
                    hint="--api-url http://127.0.0.1:8000",
                )
