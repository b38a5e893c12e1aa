"""Reads database URLs: their hosts, and how to show them without a password."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import psycopg
from psycopg import conninfo


def redact(url: str) -> str:
    """Show where a URL or DSN leads, without its password."""
    parts = parts_of(url)
    if parts is None:
        return "(a connection string that cannot be read)"
    user = f"{parts['user']}@" if parts.get("user") else ""
    hosts = listed(parts, "host") or listed(parts, "hostaddr") or ["localhost"]
    ports = listed(parts, "port")
    if len(ports) == 1:  # one port for all hosts
        ports *= len(hosts)
    servers = [
        f"{host}:{port}" if port else host for host, port in zip_longest(hosts, ports, fillvalue="")
    ]
    return f"postgresql://{user}{','.join(servers)}/{parts.get('dbname') or ''}"


def listed(parts: dict[str, Any], name: str) -> list[str]:
    return str(parts[name]).split(",") if parts.get(name) else []


def parts_of(url: str) -> dict[str, Any] | None:
    """The parts of a URL; None if it is invalid or a password may be misread."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return None
    misread = any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname"))
    numbered = all(port.isdecimal() for port in listed(parts, "port") if port)
    return dict(parts) if numbered and not misread else None


# For each list of hosts, the position of the one that last accepted a session of this process.
_last_reached: dict[tuple[str, ...], int] = {}
_LISTS = ("host", "hostaddr", "port")


def nearest_first(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the host in front that was reached last, if several are named.

    A host that froze or lost its power costs its connect_timeout before the next one is tried. Once one
    session of the process has found the new primary, the others do not wait for the old one again.
    """
    place = _last_reached.get(_key(options), 0)
    if not place or options.get("load_balance_hosts", "disable") != "disable":
        return options
    ordered = dict(options)
    for name in _LISTS:
        each = listed(options, name)
        if len(each) > 1:
            ordered[name] = ",".join([each[place], *each[:place], *each[place + 1 :]])
    return ordered


def remember_reached(options: dict[str, Any], *, host: str, hostaddr: str, port: int) -> None:
    """Remember which of the hosts in `options` accepted a session."""
    hosts, addresses = listed(options, "host"), listed(options, "hostaddr")
    ports = listed(options, "port")
    for place in range(max(len(hosts), len(addresses)) if _key(options) else 0):
        named = hosts[place] == host if hosts else addresses[place] == hostaddr
        if named and (len(ports) < 2 or ports[place] == str(port)):
            _last_reached[_key(options)] = place
            return


def _key(options: dict[str, Any]) -> tuple[str, ...]:
    """The key of a list of hosts; empty for a single host."""
    named = tuple(str(options.get(name) or "") for name in _LISTS)
    return named if "," in named[0] or "," in named[1] else ()
