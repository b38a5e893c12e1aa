"""The limits of an HTTP server, and how many connections the process has descriptors for."""

from __future__ import annotations

from dataclasses import dataclass

FEWEST_CONNECTIONS = 8
# Connections that the event loop may have accepted before the first of them is looked at.
ACCEPTED_AT_ONCE = 64
_SPARE_FILES = 48  # the program's own: files, pipes, sockets to others


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
        """No more than the process has descriptors for: a flood must not take those of the database."""
        files = open_files_limit()
        if files is None:
            return self.connections
        affordable = files - self.reserved_files - ACCEPTED_AT_ONCE - _SPARE_FILES
        return max(FEWEST_CONNECTIONS, min(self.connections, affordable))


def open_files_limit() -> int | None:
    """How many descriptors this process may have; None: no limit is known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
