"""How an inspector is served, checked before anything runs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from faultline.errors import InvalidSettings

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8001
MAX_STREAMS = 100
STREAMS_PER_ADDRESS = 20
WEB = Path(__file__).parent / "web"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class InspectorSettings:
    database_url: str = field(repr=False)  # it may hold a password
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    expose: bool = False
    allowed_hosts: tuple[str, ...] = ()
    api_url: str | None = None  # None: it shows, and can do nothing
    reports: Path = Path("reports/latest")
    max_streams: int = MAX_STREAMS
    streams_per_address: int = STREAMS_PER_ADDRESS
    behind_proxy: bool = False  # whether X-Forwarded-For and X-Forwarded-Proto are believed
    version: str | None = None  # of Faultline, for the dashboard to show

    @property
    def is_discreet(self) -> bool:
        """Whether answers must not name accounts, hosts and databases: other machines can read them."""
        return self.expose

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.expose:
            raise InvalidSettings(
                f"the inspector has no login, and {self.host} can be reached from other machines",
                hint="--expose, if everyone who reaches it may read every payload; else --host 127.0.0.1",
            )
        if self.api_url is not None:
            parts = urlsplit(self.api_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
                raise InvalidSettings(
                    f"{self.api_url!r} is not the address of an API",
                    hint="--api-url http://127.0.0.1:8000",
                )
