"""Session settings that Faultline fixes when it connects, and their check.

An account's or a server's defaults (ALTER ROLE … SET, ALTER DATABASE … SET, postgresql.conf) must not
decide whether the protocol works. There are two kinds of session, each with its list here:

- CONTROL: sessions on which only Faultline's own statements run. Everything that could change their
  meaning, their text form or their end is fixed.
- HANDLER: sessions that handlers get from `job.transaction()`. Faultline fixes what the fence needs. The
  account decides how the user's own statements read and write values, how long they may take and where
  names are looked up. Where the account limits statements or lock waits, Faultline's statements in the
  same transaction are exempt (`transactions.lift_limits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from faultline.errors import DatabaseRefused

Settings = Mapping[LiteralString, LiteralString]
Values = tuple[tuple[LiteralString, LiteralString], ...]

_FENCE: dict[LiteralString, LiteralString] = {
    # the level that the protocol is written for
    "default_transaction_isolation": "'read committed'",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "TimeZone": "'UTC'",
    "idle_session_timeout": "0",  # sessions that listen or wait in a pool are idle by design
}

HANDLER: Settings = {
    **_FENCE,
    # The blocks of job.transaction() and job.fenced() begin READ WRITE. Outside of them PostgreSQL refuses
    # a handler's writes with 25006.
    "default_transaction_read_only": "on",
}

# CONTROL without a search_path, for drills, tests and migrations, which also use the user's tables.
TOOL: Settings = {
    "statement_timeout": "0",  # first: it lifts the limit for the rest of the list
    **_FENCE,
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "DateStyle": "'ISO, MDY'",  # the driver reads no other
    "IntervalStyle": "'postgres'",  # likewise
    "extra_float_digits": "1",  # numbers in JSON are read as they were stored
    "bytea_output": "'hex'",
    "row_security": "on",
}

# This search_path keeps other schemas from shadowing a built-in name.
CONTROL: Settings = {
    **TOOL,
    "search_path": "pg_catalog, pg_temp",
}

# A backend inside a query does not check its socket, and would not notice its client's death. Nor would it
# notice for two hours that the client's host is gone. These settings exist on Linux.
_LINUX: Settings = {
    "client_connection_check_interval": "'200ms'",
    "tcp_user_timeout": "'15s'",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_TRANSACTION_TIMEOUT_VERSION = 170000  # the first server that has transaction_timeout

PROBE: LiteralString = """
    SELECT pg_backend_pid(), version() ~* 'linux', pg_is_in_recovery(),
        (extract(epoch FROM current_setting('statement_timeout')::interval) * 1000)::bigint,
        (extract(epoch FROM current_setting('lock_timeout')::interval) * 1000)::bigint,
        current_setting('default_transaction_read_only'), current_setting('default_transaction_isolation'),
        current_setting('DateStyle'), current_setting('IntervalStyle')
    """

# A role's statement_timeout may end even the first statements of a session, if the machine stalls.
TRIES = 20

# Behind a pooler: with less, a statement of the protocol may never end on a busy server.
_SHORTEST_STATEMENT_MILLISECONDS = 100


@dataclass(frozen=True, slots=True)
class Session:
    """Properties of a new connection."""

    is_standby: bool
    is_pooled: bool  # a pooler is in between: no LISTEN, no session locks, no named statements
    settings: LiteralString | None  # the SET statements that were sent; None behind a pooler
    # The account limits statements or lock waits, and the session keeps that.
    has_limits: bool = False
    values: Values = ()  # the values of `settings`, to set them again


def describe(
    probe: tuple[Any, ...], *, user: str, backend_pid: int, server_version: int, settings: Settings
) -> Session:
    """Read the answer to PROBE; raise DatabaseRefused where the protocol cannot work."""
    pid, on_linux, is_standby, statement_ms, lock_ms, *values = probe
    if pid != backend_pid:
        if unfit := _unfit(statement_ms, *values):
            raise DatabaseRefused(
                f"the account {user} has {unfit}: Faultline cannot work with that, and behind a pooler"
                " it cannot set its own values",
                hint=f"run ALTER ROLE {user} RESET … for each, or use a URL without the pooler",
            )
        limited = bool(statement_ms or lock_ms)
        return Session(is_standby, True, settings=None, has_limits=limited)
    sent = dict(settings)
    if settings is not HANDLER and server_version >= _TRANSACTION_TIMEOUT_VERSION:
        sent["transaction_timeout"] = "0"
    if on_linux:
        sent.update(_LINUX)
    keeps_limits = ("statement_timeout" not in sent and statement_ms) or (
        "lock_timeout" not in sent and lock_ms
    )
    return Session(
        is_standby,
        False,
        settings=set_statements(sent),
        has_limits=bool(keeps_limits),
        values=tuple((name, value.strip("'")) for name, value in sent.items()),
    )


def too_short(message: str | None) -> DatabaseRefused:
    return DatabaseRefused(
        f"the server cancelled each of {TRIES} tries to set up a session: {message}",
        hint="the account's statement_timeout is too short: ALTER ROLE … RESET statement_timeout",
    )


def set_statements(settings: Settings) -> LiteralString:
    parts: list[LiteralString] = [f"SET {name} = {value}" for name, value in settings.items()]
    joined: LiteralString = "; ".join(parts)
    return joined


def _unfit(
    statement_ms: int, read_only: str, isolation: str, date_style: str, interval_style: str
) -> str | None:
    """The settings of a pooled session under which the protocol cannot work."""
    wrong = {}
    if 0 < statement_ms < _SHORTEST_STATEMENT_MILLISECONDS:
        wrong["statement_timeout"] = f"{statement_ms}ms"
    if read_only != "off":
        wrong["default_transaction_read_only"] = read_only
    if isolation != "read committed":
        wrong["default_transaction_isolation"] = isolation
    if not date_style.startswith("ISO"):
        wrong["DateStyle"] = date_style
    if interval_style != "postgres":
        wrong["IntervalStyle"] = interval_style
    return ", ".join(f"{name} = {value}" for name, value in wrong.items()) or None
