"""Sessions of commands: explained errors, lock timeouts, audited actions."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from faultline.cli.context import Context
from faultline.errors import DatabaseUnavailable, FaultlineError
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import driver_errors, explain_error
from faultline.postgres.reconnecting import is_transient
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import audit
from faultline.statements.audit import Actor

LOCK_TIMEOUT_SECONDS = 5


@contextmanager
def session(context: Context) -> Iterator[Connection]:
    """A session on a database with the current schema; errors are explained."""
    with driver_errors(), context.connection() as conn:
        yield conn


@contextmanager
def with_lock_timeout(conn: Connection) -> Iterator[None]:
    """A transaction that fails if a lock is not granted within LOCK_TIMEOUT_SECONDS."""
    with conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        yield


@contextmanager
def audited(conn: Connection, action: str, target: str | None = None) -> Iterator[None]:
    """A transaction for an operator's action, recorded in the audit log.

    The SQL function that acts writes the row. If the action is refused, PostgreSQL rolls that row back
    too, so the refusal is recorded in a second transaction, with `action` and `target`.
    """
    actor = Actor("command line", _user())
    try:
        with with_lock_timeout(conn):
            run(conn, audit.acting_for(actor))
            yield
    except (FaultlineError, DriverError) as error:
        refusal = explain_error(error) if isinstance(error, DriverError) else error
        if audit.is_refusal(refusal):
            row = audit.record_refusal(actor, action=action, target=target, code=refusal.code)
            with suppress(FaultlineError, DriverError):  # the account may lack this right too
                run(conn, row)
        raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's account may have no name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def require_schema(url: str, check: Callable[[Connection], None]) -> None:
    """Raise an error for a wrong schema, but wait for an unreachable server later."""
    try:
        with connect(url, application_name="faultline cli") as conn:
            check(conn)
    except (DatabaseUnavailable, DriverError) as error:
        if not is_transient(error):
            raise
