"""PostgreSQL settings for the servers of a cluster."""

from __future__ import annotations

MEMBER_SETTINGS = {
    # Drills kill processes, not the machine, so written data survives without fsync.
    "fsync": "off",
    # So that a standby reconnects to another primary at once, and finds the WAL that it missed.
    "wal_retrieve_retry_interval": "50ms",
    "wal_keep_size": "256MB",
    "max_connections": "100",
}
