"""Checks of `doctor` on its own connection: target, pooler and encryption."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from faultline.cli.doctor.check import Check, ok, warning
from faultline.postgres.sessions import Connection, run
from faultline.statements import server
from faultline.statements.session_settings import Session

_VERIFY = (
    "put into the URL: sslmode=verify-full&sslrootcert=FILE, the certificate of your authority"
)


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    is_local: bool  # the connection does not leave this machine
    cipher: str | None  # None: plain text
    mode: str  # libpq's sslmode


def connection_checks(conn: Connection, session: Session) -> Iterator[Check]:
    info = conn.info  # unlike the URL it holds no password
    yield ok("connection", f"{info.user}@{info.host}:{info.port}/{info.dbname}")
    if session.is_pooled:
        yield warning(
            "pooler",
            "the connection goes through a pooler: workers poll instead of listening, a dead worker is"
            " noticed only when its lease runs out, and no statement stays prepared",
            "give workers a URL that leads directly to the server; producers may keep the pooler",
        )
        name = "client_connection_check_interval"
        if run(conn, server.settings([name])).get(name) == "0":
            yield warning(
                "pooler's clients",
                "a query whose client has disconnected runs on, and keeps its job locked",
                f"ALTER ROLE … SET {name} = '200ms' for the accounts that use the pooler",
            )
    else:
        yield ok("pooler", "none: this session is connected to the server itself")


def encryption(conn: Connection) -> Iterator[Check]:
    encrypted = conn.pgconn.ssl_in_use
    cipher = run(conn, server.own_encryption()) if encrypted else None
    yield judge(ConnectionSecurity(_is_local(conn), cipher, _option(conn, "sslmode")))


def judge(security: ConnectionSecurity) -> Check:
    match security:
        case ConnectionSecurity(is_local=True, cipher=None):
            return ok("encryption", "none, but the connection does not leave this machine")
        case ConnectionSecurity(cipher=None):
            finding = "NONE: passwords, payloads and results can be read and changed on the network"
            advice = f"turn on TLS in the server, use hostssl in pg_hba.conf, and {_VERIFY}"
            return warning("encryption", finding, advice)
        case ConnectionSecurity(mode="verify-full"):
            return ok("encryption", f"{security.cipher}; certificate and host name verified")
        case ConnectionSecurity(is_local=True):
            return ok("encryption", f"{security.cipher}; sslmode={security.mode}, on this machine")
        case ConnectionSecurity(mode="verify-ca"):
            finding = f"{security.cipher}; the certificate is verified, but not its host name"
            return warning("encryption", finding, _VERIFY)
    finding = f"{security.cipher}; NOT VERIFIED (sslmode={security.mode}): any server is accepted"
    return warning("encryption", finding, _VERIFY)


def _is_local(conn: Connection) -> bool:
    """Whether it is a Unix socket or loopback; a pooler may lead elsewhere."""
    try:
        return ipaddress.ip_address(conn.info.hostaddr).is_loopback
    except ValueError:
        return conn.info.host.startswith(("/", "@"))


def _option(conn: Connection, name: str) -> str:
    """The value that libpq uses, from any of its sources."""
    for option in conn.pgconn.info:
        if option.keyword == name.encode():
            return (option.val or b"").decode()
    return ""
