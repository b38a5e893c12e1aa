"""How the producer API behaves: every limit in one place, checked before anything runs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, fields
from typing import Any

from faultline.errors import InvalidSettings
from faultline.payload import MAX_DEPTH
from faultline.serving.limits import ServerLimits
from faultline.task import MAX_BATCH

MEBIBYTE = 1024 * 1024


def _limit(default: Any, at_least: float, at_most: float, says: str) -> Any:
    return field(default=default, metadata={"range": (at_least, at_most), "says": says})


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    host: str = "127.0.0.1"
    port: int = _limit(8000, 0, 65535, "The port; 0 takes a free one and says which.")
    require_keys: bool = True  # without, only on a loopback address
    behind_proxy: bool = False  # whether X-Forwarded-For names the client
    open_metrics: bool = False  # GET /metrics without a key

    request_seconds: float = _limit(
        10.0, 0.1, 600, "The longest a request may take, database and body included."
    )
    send_seconds: float = _limit(10.0, 0.1, 600, "How long a client may take no more of an answer.")
    header_seconds: float = _limit(
        10.0, 0.1, 600, "How long a client may take to send a request's headers."
    )
    idle_seconds: float = _limit(30.0, 1, 3600, "How long an unused connection is kept.")
    drain_seconds: float = _limit(
        15.0, 0, 600, "How long requests may finish after SIGTERM before they are cut off."
    )

    connections: int = _limit(10, 1, 1000, "Connections to the database, besides one to watch it.")
    concurrent_requests: int = _limit(
        100, 1, 100_000, "Requests under way at once; beyond it, 503."
    )
    client_connections: int = _limit(1000, 1, 100_000, "Open connections of clients.")
    connections_per_address: int = _limit(
        500, 1, 100_000, "Open connections of one address; behind a proxy all have the proxy's."
    )
    requests_per_second: float = _limit(
        200.0, 0, 1_000_000, "Of one key, in the long run; beyond it, 429. 0 for no limit."
    )
    burst: int = _limit(400, 1, 1_000_000, "Of one key, at once, after a while of silence.")
    wrong_keys_per_second: float = _limit(
        1.0,
        0,
        1_000_000,
        "Wrong keys of one address, in the long run; beyond it, 429. 0 for no limit.",
    )
    wrong_key_burst: int = _limit(
        30, 1, 1_000_000, "Wrong keys of one address at once, after a while without any."
    )
    key_cache_seconds: float = _limit(
        1.0, 0, 60, "How long a key is believed after it was looked up: a revoked one no longer."
    )

    # A payload of the library's 1 MiB, escaped as most JSON libraries escape it, is up to three.
    body_bytes: int = _limit(4 * MEBIBYTE, 1024, 256 * MEBIBYTE, "The longest body; else 413.")
    header_bytes: int = _limit(
        16 * 1024, 1024, MEBIBYTE, "The longest request line and headers together; else 431."
    )
    json_depth: int = _limit(
        MAX_DEPTH, 1, MAX_DEPTH, "How deep a payload may nest; the library's own limit is the most."
    )
    batch_jobs: int = _limit(1000, 1, MAX_BATCH, "Jobs in one batch.")
    page_size: int = _limit(200, 1, 1000, "Jobs in one page of GET /jobs.")
    page_scan: int = _limit(
        10_000, 1, 1_000_000, "Jobs that a filtered page may look at; the next goes on from there."
    )

    @property
    def server_limits(self) -> ServerLimits:
        return ServerLimits(
            host=self.host,
            port=self.port,
            connections=self.client_connections,
            connections_per_address=self.connections_per_address,
            header_seconds=self.header_seconds,
            send_seconds=self.send_seconds,
            idle_seconds=self.idle_seconds,
            drain_seconds=self.drain_seconds,
            header_bytes=self.header_bytes,
            reserved_files=self.connections + 1,
        )

    def __post_init__(self) -> None:
        for limit in fields(self):
            if "range" not in limit.metadata:
                continue
            at_least, at_most = limit.metadata["range"]
            value = getattr(self, limit.name)
            if not at_least <= value <= at_most:
                raise InvalidSettings(
                    f"{limit.name} is {value}; it may be {at_least:,} to {at_most:,}"
                )
        if not self.require_keys and not is_loopback(self.host):
            raise InvalidSettings(
                f"without keys the API answers anybody who reaches {self.host}",
                hint="bind it to 127.0.0.1, or make keys: faultline keys create NAME --scope enqueue",
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can mean it. A name other than localhost may be anybody's."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
