"""Checks of `doctor` on its own connection: where it leads, a pooler, encryption."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from faultline.cli.doctor.check import Check, ok, warning
from faultline.postgres.sessions import Connection, run
from faultline.statements import server
from faultline.statements.session_settings import Session

_VERIFY = "in the URL: sslmode=verify-full&sslrootcert=FILE, the certificate of your authority"


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    stays_here: bool  # it never leaves this machine
    cipher: str | None  # None: in plain text
    mode: str  # libpq's sslmode: what is verified


def connection_checks(conn: Connection, session: Session) -> Iterator[Check]:
    info = conn.info  # not the URL: nothing of a password is in here
    yield ok("connection", f"{info.user}@{info.host}:{info.port}/{info.dbname}")
    if session.is_pooled:
        yield warning(
            "pooler",
            "a pooler sits in between: workers poll instead of listening, a dead worker is noticed"
            " only when its lease runs out, and no statement stays prepared",
            "give workers a URL that leads straight to the server; producers may keep the pooler",
        )
        name = "client_connection_check_interval"
        if run(conn, server.settings([name])).get(name) == "0":
            yield warning(
                "pooler's clients",
                "a query whose client is gone goes on to its end, and keeps its job locked",
                f"ALTER ROLE … SET {name} = '200ms' for the accounts that come through it",
            )
    else:
        yield ok("pooler", "none: this session is the server's own")


def encryption(conn: Connection) -> Iterator[Check]:
    encrypted = conn.pgconn.ssl_in_use
    cipher = run(conn, server.own_encryption()) if encrypted else None
    yield judge(ConnectionSecurity(_stays_here(conn), cipher, _option(conn, "sslmode")))


def judge(security: ConnectionSecurity) -> Check:
    match security:
        case ConnectionSecurity(stays_here=True, cipher=None):
            return ok("encryption", "none, and the connection stays on this machine")
        case ConnectionSecurity(cipher=None):
            said = "NONE: passwords, payloads and results can be read on the way, and changed"
            advice = f"TLS on the server, hostssl in pg_hba.conf, and {_VERIFY}"
            return warning("encryption", said, advice)
        case ConnectionSecurity(mode="verify-full"):
            return ok("encryption", f"{security.cipher}; certificate and host name verified")
        case ConnectionSecurity(stays_here=True):
            return ok("encryption", f"{security.cipher}; sslmode={security.mode}, on this machine")
        case ConnectionSecurity(mode="verify-ca"):
            said = f"{security.cipher}; the certificate is verified, but not that it is this host's"
            return warning("encryption", said, _VERIFY)
    said = f"{security.cipher}; NOT VERIFIED (sslmode={security.mode}): whoever answers is believed"
    return warning("encryption", said, _VERIFY)


def _stays_here(conn: Connection) -> bool:
    """By a socket in the file system or a loopback address. A pooler there may go on from there."""
    try:
        return ipaddress.ip_address(conn.info.hostaddr).is_loopback
    except ValueError:
        return conn.info.host.startswith(("/", "@"))


def _option(conn: Connection, name: str) -> str:
    """As libpq has settled it: by the URL, the environment, a service file, or its own default."""
    for option in conn.pgconn.info:
        if option.keyword == name.encode():
            return (option.val or b"").decode()
    return ""
