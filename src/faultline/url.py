"""Reads database URLs: which hosts they name, and how to show them without a password."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import psycopg
from psycopg import conninfo


def redact(url: str) -> str:
    """Where a URL or DSN leads, fit for logs: built from its parts, none of which is a password."""
    parts = parts_of(url)
    if parts is None:
        return "(a connection string that cannot be read)"
    user = f"{parts['user']}@" if parts.get("user") else ""
    hosts = listed(parts, "host") or listed(parts, "hostaddr") or ["localhost"]
    ports = listed(parts, "port")
    if len(ports) == 1:  # one for all of them
        ports *= len(hosts)
    servers = [
        f"{host}:{port}" if port else host for host, port in zip_longest(hosts, ports, fillvalue="")
    ]
    return f"postgresql://{user}{','.join(servers)}/{parts.get('dbname') or ''}"


def listed(parts: dict[str, Any], name: str) -> list[str]:
    return str(parts[name]).split(",") if parts.get(name) else []


def parts_of(url: str) -> dict[str, Any] | None:
    """None when it cannot be read, or when part of a password seems to be read as something else."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return None
    misread = any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname"))
    numbered = all(port.isdecimal() for port in listed(parts, "port") if port)
    return dict(parts) if numbered and not misread else None
