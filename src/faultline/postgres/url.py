"""Reads database URLs: their hosts, and how to show them without a password."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from faultline.errors import InvalidSettings

_WITH_DRIVER = re.compile(r"\A\s*postgres(?:ql)?\+\w+://", re.IGNORECASE)


def without_driver(url: str) -> str:
    """The URL without the driver that SQLAlchemy's have: `postgresql+psycopg://`."""
    return _WITH_DRIVER.sub("postgresql://", url)


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
        parts = conninfo.conninfo_to_dict(without_driver(url))
    except psycopg.ProgrammingError:
        return None
    misread = any("@" in str(parts.get(name, "")) for name in ("host", "port", "dbname"))
    numbered = all(port.isdecimal() for port in listed(parts, "port") if port)
    return dict(parts) if numbered and not misread else None


_SCHEME = re.compile(r"\A\s*([A-Za-z][\w+.:-]{0,30})://")
_FORM = "postgresql://user:password@host:5432/database"
# Options of other drivers' URLs, and how PostgreSQL's own are spelled.
_FOREIGN_OPTIONS = {
    "ssl": "sslmode=require",
    "schema": "options=-csearch_path%3DNAME",
    "timeout": "connect_timeout=SECONDS",
    "command_timeout": "options=-cstatement_timeout%3D5s",
    "async_fallback": None,
    "connection_limit": None,
    "pgbouncer": None,
    "pool_size": None,
    "prepared_statement_cache_size": None,
    "statement_cache_size": None,
}


def why_unreadable(url: str) -> tuple[str, str]:
    """What is wrong with a URL that `parts_of` refuses, and a hint.

    Nothing else of the URL is shown, since it may hold a password.
    """
    scheme = _SCHEME.match(url)
    if scheme and not _WITH_DRIVER.match(url) and scheme[1] not in ("postgres", "postgresql"):
        return f"it begins with {scheme[1]}://, and Faultline needs PostgreSQL", _FORM
    for option, ours in _FOREIGN_OPTIONS.items():
        if re.search(rf"[?&]{option}=", url):
            instead = "leave it out" if ours is None else f"write {ours} instead"
            return f"PostgreSQL has no option {option!r} of a connection", instead
    return (
        "it cannot be read, and is not shown, since it may hold a password",
        f"{_FORM}, with %40 and %2F for @ and / in it",
    )


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


VARIABLE = "DATABASE_URL"


FILE_VARIABLE = "DATABASE_URL_FILE"


_LONGEST_BYTES = 64 * 1024


def url_from_environment() -> str | None:
    """The URL, without the name of a driver; None if neither variable is set.

    Every enqueue asks for it. The file is read again only when it was replaced, as a renewed secret is.
    """
    url, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if not path:
        return without_driver(url) if url else None
    if url:
        raise InvalidSettings(
            f"{VARIABLE} and {FILE_VARIABLE} are both set", hint="unset one of them"
        )
    try:
        found = Path(path).stat()
        return _read(path, found.st_ino, found.st_mtime_ns)
    except OSError as error:
        raise InvalidSettings(
            f"{FILE_VARIABLE} names {path}, which cannot be read: {error.strerror}",
            hint="it must be a file that this account may read",
        ) from None


@lru_cache(maxsize=1)
def _read(path: str, inode: int, changed_at: int) -> str:
    """Read the URL from a file. Its content is a secret and appears in no message."""
    with Path(path).open("rb") as file:
        content = file.read(_LONGEST_BYTES + 1)
    try:
        url = content.decode().strip()
    except UnicodeDecodeError:
        url = ""
    if not url or len(content) > _LONGEST_BYTES or "\0" in url:
        raise InvalidSettings(
            f"{FILE_VARIABLE} names {path}, which does not hold a database URL",
            hint="postgresql://user:password@host:5432/database and nothing else",
        )
    return without_driver(url)


def environment_with(url: str) -> dict[str, str]:
    """The environment of a child process with this URL: command lines are public."""
    inherited = {name: value for name, value in os.environ.items() if name != FILE_VARIABLE}
    return {**inherited, VARIABLE: url}
