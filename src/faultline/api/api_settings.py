"""Settings of the producer API: every limit, validated when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from faultline.enqueueing import MAX_BATCH
from faultline.errors import InvalidSettings
from faultline.payload import MAX_DEPTH
from faultline.serving.limits import ServerLimits, is_loopback

MEBIBYTE = 1024 * 1024
MAX_WAIT_SECONDS = 30


def _limit(default: Any, at_least: float, at_most: float, text: str) -> Any:
    return field(default=default, metadata={"range": (at_least, at_most), "help": text})


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    host: str = "127.0.0.1"
    port: int = _limit(8000, 0, 65535, "The port; 0 chooses a free one.")
    require_keys: bool = True  # False: only on a loopback address
    behind_proxy: bool = False  # whether X-Forwarded-For names the client
    open_metrics: bool = False  # GET /metrics without a key

    request_seconds: float = _limit(
        10.0, 0.1, 600, "Time limit of a request, including its body and the database."
    )
    wait_seconds: float = _limit(
        30.0, 0, MAX_WAIT_SECONDS, "How long GET /jobs/{id} waits at most for the end of a job."
    )
    send_seconds: float = _limit(10.0, 0.1, 600, "How long a client may stop reading a response.")
    header_seconds: float = _limit(
        10.0, 0.1, 600, "How long a client may take to send the headers."
    )
    idle_seconds: float = _limit(30.0, 1, 3600, "How long an idle connection is kept open.")
    drain_seconds: float = _limit(
        15.0, 0, 600, "How long requests may take after SIGTERM before they are aborted."
    )

    connections: int = _limit(
        10, 1, 1000, "Connections to the database, without the one for health checks."
    )
    concurrent_requests: int = _limit(100, 1, 100_000, "Concurrent requests; more get 503.")
    client_connections: int = _limit(1000, 1, 100_000, "Open client connections.")
    connections_per_address: int = _limit(
        500, 1, 100_000, "Open connections of one address; behind a proxy, of the proxy."
    )
    requests_per_second: float = _limit(
        200.0, 0, 1_000_000, "Requests per second of one key; more get 429. 0: no limit."
    )
    burst: int = _limit(400, 1, 1_000_000, "Requests of one key at once, after a pause.")
    wrong_keys_per_second: float = _limit(
        1.0,
        0,
        1_000_000,
        "Wrong keys per second of one address; more get 429. 0: no limit.",
    )
    wrong_key_burst: int = _limit(
        30, 1, 1_000_000, "Wrong keys of one address at once, after a pause."
    )
    key_cache_seconds: float = _limit(
        1.0, 0, 60, "How long a valid key is cached: a revoked key works this long."
    )

    # A payload of the library's limit, 1 MiB, may have 3 MiB with the escapes of most JSON libraries.
    body_bytes: int = _limit(
        4 * MEBIBYTE, 1024, 256 * MEBIBYTE, "The longest body; a longer one gets 413."
    )
    header_bytes: int = _limit(
        16 * 1024, 1024, MEBIBYTE, "The longest request line and headers; longer ones get 431."
    )
    json_depth: int = _limit(MAX_DEPTH, 1, MAX_DEPTH, "How deep a payload may nest.")
    batch_jobs: int = _limit(1000, 1, MAX_BATCH, "Jobs in one batch.")
    page_size: int = _limit(200, 1, 1000, "Jobs in one page of GET /jobs.")
    page_scan: int = _limit(
        10_000, 1, 1_000_000, "Jobs that a filtered page of GET /jobs examines."
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
                    f"{limit.name} is {value}; it must be {at_least:,} to {at_most:,}"
                )
        if not self.require_keys and not is_loopback(self.host):
            raise InvalidSettings(
                f"without keys every client that reaches {self.host} could use the API",
                hint="bind it to 127.0.0.1, or make keys: faultline keys create NAME --scope enqueue",
            )
