"""Limits of an HTTP server, also by the process's file descriptors."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

FEWEST_CONNECTIONS = 8
# Connections that the event loop may accept before it serves the first of them.
ACCEPTED_AT_ONCE = 64
_SPARE_FILES = 48  # for the program's own files, pipes and sockets


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    host: str
    port: int
    connections: int  # of clients, in all
    connections_per_address: int
    header_seconds: float = 10.0
    send_seconds: float = 10.0
    idle_seconds: float = 30.0
    drain_seconds: float = 15.0
    header_bytes: int = 16 * 1024
    reserved_files: int = 16  # for sessions with the database

    @property
    def affordable_connections(self) -> int:
        """`connections`, or fewer if the process has not enough descriptors.

        A flood of clients must not use up the descriptors of the database sessions.
        """
        files = open_files_limit()
        if files is None:
            return self.connections
        affordable = files - self.reserved_files - ACCEPTED_AT_ONCE - _SPARE_FILES
        return max(FEWEST_CONNECTIONS, min(self.connections, affordable))


def open_files_limit() -> int | None:
    """How many descriptors this process may open; None: no limit is known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the host.

    Names other than localhost count as remote.
    """
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
