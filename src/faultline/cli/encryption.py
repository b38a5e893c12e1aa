"""What `doctor` says of the way to the server: who can read along, and who could answer in its place."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from faultline.cli.checks import Check, ok, warning
from faultline.postgres.sessions import Connection, run
from faultline.statements import server

_VERIFY = "in the URL: sslmode=verify-full&sslrootcert=FILE, the certificate of your authority"


@dataclass(frozen=True, slots=True)
class Passage:
    stays_here: bool  # it never leaves this machine
    cipher: str | None  # None: in plain text
    mode: str  # libpq's sslmode: what is verified


def encryption(conn: Connection) -> Iterator[Check]:
    encrypted = conn.pgconn.ssl_in_use
    cipher = run(conn, server.own_encryption()) if encrypted else None
    yield judge(Passage(_stays_here(conn), cipher, _option(conn, "sslmode")))


def judge(passage: Passage) -> Check:
    match passage:
        case Passage(stays_here=True, cipher=None):
            return ok("encryption", "none, and the connection stays on this machine")
        case Passage(cipher=None):
            said = "NONE: passwords, payloads and results can be read on the way, and changed"
            advice = f"TLS on the server, hostssl in pg_hba.conf, and {_VERIFY}"
            return warning("encryption", said, advice)
        case Passage(mode="verify-full"):
            return ok("encryption", f"{passage.cipher}; certificate and host name verified")
        case Passage(stays_here=True):
            return ok("encryption", f"{passage.cipher}; sslmode={passage.mode}, on this machine")
        case Passage(mode="verify-ca"):
            said = f"{passage.cipher}; the certificate is verified, but not that it is this host's"
            return warning("encryption", said, _VERIFY)
    said = f"{passage.cipher}; NOT VERIFIED (sslmode={passage.mode}): whoever answers is believed"
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
