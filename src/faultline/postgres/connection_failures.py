"""Explains why a connection to PostgreSQL failed, and what to do about it.

libpq reports these failures as text without an SQLSTATE. A server may translate its messages; one that
is not recognised is shown as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from faultline.errors import DatabaseUnavailable
from faultline.postgres.url import listed, parts_of, redact

_GENERIC_HINT = "check DATABASE_URL, that the server is running, and the server's log"
_STANDBY_HINT = "name the primary; with several hosts in the URL it is found by itself"


class _Cause(NamedTuple):
    """`says` replaces the driver's message, unless it is None; {} is the name in it.

    `needs_correction`: the server answered, and waiting for it does not help.
    """

    pattern: re.Pattern[str]
    says: str | None
    hint: Callable[[dict[str, Any], str], str]
    needs_correction: bool


def _fixed(text: str) -> Callable[[dict[str, Any], str], str]:
    return lambda parts, name: text.format(name)


def _createdb(parts: dict[str, Any], name: str) -> str:
    """The command that creates the database on the server of the URL."""
    words = ["createdb"]
    for option, name_of_part in (("-h", "host"), ("-p", "port"), ("-U", "user")):
        values = listed(parts, name_of_part)[:1]
        words += [option, *values]
    return f"create it, or correct the URL: {shlex.join([*words, name])}"


def _cause(
    pattern: str,
    says: str | None,
    hint: str | Callable[[dict[str, Any], str], str],
    *,
    needs_correction: bool = False,
) -> _Cause:
    found_hint = hint if callable(hint) else _fixed(hint)
    return _Cause(re.compile(pattern), says, found_hint, needs_correction)


_CAUSES = (
    _cause(
        r'database "(.+?)" does not exist',
        'there is no database "{}" on this server',
        _createdb,
        needs_correction=True,
    ),
    _cause(
        r'password authentication failed for user "(.+?)"',
        'the server does not accept this password for the account "{}", or has no such account',
        "correct the account and the password in DATABASE_URL",
        needs_correction=True,
    ),
    _cause(
        r"no password supplied",
        "the server asks for a password, and none is given",
        "postgresql://user:password@host/database, PGPASSWORD or a passfile",
        needs_correction=True,
    ),
    _cause(
        r'role "(.+?)" does not exist',
        'there is no account "{}" on this server',
        'correct the account in DATABASE_URL, or create it: CREATE ROLE "{}" LOGIN',
        needs_correction=True,
    ),
    _cause(
        r'role "(.+?)" is not permitted to log in',
        'the account "{}" may not log in',
        'ALTER ROLE "{}" LOGIN',
        needs_correction=True,
    ),
    _cause(
        r"no pg_hba\.conf entry",
        None,
        "add an entry to pg_hba.conf and reload it, or try sslmode=require in the URL",
        needs_correction=True,
    ),
    _cause(
        r'permission denied for database "(.+?)"',
        'the account may not connect to the database "{}"',
        'GRANT CONNECT ON DATABASE "{}" TO the account',
        needs_correction=True,
    ),
    _cause(
        r"too many clients|remaining connection slots|too many connections for",
        "all of the server's connections are in use",
        "end idle sessions, use fewer processes or a pooler, or raise max_connections",
    ),
    _cause(
        r"is (?:starting up|shutting down)|in recovery mode|not yet accepting connections",
        "the server is starting or stopping",
        "try again in a few seconds",
    ),
    _cause(
        r"failed to resolve host|could not translate host name",
        "the host's name cannot be resolved",
        "correct the host in DATABASE_URL, or check the DNS of this machine",
    ),
    _cause(
        r"Connection refused|No such file or directory",
        "no server is running there (connection refused)",
        "start PostgreSQL, or correct host and port in DATABASE_URL; without DATABASE_URL, Faultline starts"
        " an embedded server for development",
    ),
    _cause(
        r"timeout expired|timed out|No route to host|Network is unreachable",
        "the host does not answer",
        "check host and port in DATABASE_URL, the network and the firewall",
    ),
    _cause(
        r"does not support SSL",
        "the server does not support TLS, and the URL requires it",
        "switch on ssl in postgresql.conf, or remove sslmode from the URL",
    ),
)


def unavailable(url: str, error: Exception | str) -> DatabaseUnavailable:
    """The error for a connection that failed with `error`."""
    message = " ".join(str(error).split())
    if "hot standby mode" in message:
        return DatabaseUnavailable(
            f"{redact(url)} is a standby, and only reads: waiting until it is promoted ({message})",
            hint=_STANDBY_HINT,
        )
    parts = parts_of(url) or {}
    says, hint, needs_correction = message, _GENERIC_HINT, False
    has_several_hosts = len(listed(parts, "host")) > 1
    for cause in _CAUSES:
        if found := cause.pattern.search(message):
            name = found[1] if found.groups() else ""
            hint = cause.hint(parts, name)
            # Of several hosts, one that is away may be the right one.
            needs_correction = cause.needs_correction and not has_several_hosts
            if cause.says is not None and "Multiple connection attempts" not in message:
                says = cause.says.format(name)
            break
    return DatabaseUnavailable(
        f"cannot connect to PostgreSQL at {redact(url)}: {says}",
        hint=hint,
        needs_correction=needs_correction,
    )
