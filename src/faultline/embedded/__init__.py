"""Embedded PostgreSQL: finds the server's programs, and starts and stops servers."""

from faultline.embedded.development import (
    ServerStatus,
    default_data_dir,
    ensure_running,
    status,
    stop_running,
)
from faultline.embedded.process import all_binaries, find_binaries
from faultline.embedded.server import Server, temporary_server

__all__ = [
    "Server",
    "ServerStatus",
    "all_binaries",
    "default_data_dir",
    "ensure_running",
    "find_binaries",
    "status",
    "stop_running",
    "temporary_server",
]
