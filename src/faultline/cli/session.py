"""A command's session with the database, whose every error is in words that help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from faultline.cli.context import Context
from faultline.database import Connection, is_connection_lost, translate
from faultline.errors import DatabaseUnavailable, FaultlineError

LOCK_TIMEOUT_SECONDS = 5


class DatabaseRefused(FaultlineError):
    """PostgreSQL was reached and refused a command: rights, a lock, or a server that only reads."""

    code = "database_refused"


@contextmanager
def session(context: Context) -> Iterator[Connection]:
    """A session on a database whose schema this code speaks."""
    with spoken_errors(), context.connection() as conn:
        yield conn


@contextmanager
def impatient(conn: Connection) -> Iterator[None]:
    """A transaction that gives up rather than wait for a lock without saying why."""
    with conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        yield


@contextmanager
def spoken_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise spoken(error) from error


def spoken(error: psycopg.Error) -> FaultlineError:
    if known := translate(error):
        return known
    said = error.diag.message_primary or " ".join(str(error).split())
    if is_connection_lost(error):
        return DatabaseUnavailable(
            f"PostgreSQL ended the session: {said}", hint="run it again; see faultline doctor"
        )
    match error.sqlstate:
        case "42501":
            hint = "use an account with the role faultline_operator, or the schema's owner"
        case "25006":
            hint = "this is a standby, or a session that only reads: connect to the primary"
        case "55P03":
            hint = "a transaction holds the lock: faultline why JOB names it; then try again"
        case _:
            hint = "see faultline doctor, and the server's log"
    return DatabaseRefused(f"PostgreSQL refused ({error.sqlstate}): {said}", hint=hint)
