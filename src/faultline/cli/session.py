"""A command's session with the database, whose every error is in words that help."""

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
    """A session on a database whose schema this code speaks."""
    with driver_errors(), context.connection() as conn:
        yield conn


@contextmanager
def with_lock_timeout(conn: Connection) -> Iterator[None]:
    """A transaction that gives up rather than wait for a lock without saying why."""
    with conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        yield


@contextmanager
def audited(conn: Connection, action: str, target: str | None = None) -> Iterator[None]:
    """A transaction of an operator's action, which the audit log records under this user's name.

    The function that acts writes the row. If the action is refused, PostgreSQL rolls that row back
    too: `action` and `target` then name it in a row of its own.
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
            with suppress(FaultlineError, DriverError):  # the account may not even do that
                run(conn, row)
        raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's account may have no name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def require_schema(url: str, check: Callable[[Connection], None]) -> None:
    """A wrong schema is an error at once; a server that is away is waited for, by who needs it first."""
    try:
        with connect(url, application_name="faultline cli") as conn:
            check(conn)
    except (DatabaseUnavailable, DriverError) as error:
        if not is_transient(error):
            raise
