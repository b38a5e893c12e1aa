"""How the servers of a cluster are set up, beside what every server of ours is."""

from __future__ import annotations

MEMBER_SETTINGS = {
    # Processes are ended here, never the machine: what they wrote is still there without it.
    "fsync": "off",
    # A standby that is told to follow another server shall not wait five seconds before it asks it,
    # and one that was left behind shall find what it missed.
    "wal_retrieve_retry_interval": "50ms",
    "wal_keep_size": "256MB",
    "max_connections": "100",
}
