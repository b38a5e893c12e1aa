"""The names of the driver that other packages use: connections, errors, states.

No other package imports psycopg, so a change of the driver is a change of this package.
"""

from __future__ import annotations

from psycopg import (
    AsyncConnection,
    Connection,
    IsolationLevel,
    OperationalError,
    ProgrammingError,
    Rollback,
    conninfo,
    sql,
)
from psycopg import Error as DriverError
from psycopg.errors import Diagnostic, InsufficientPrivilege, LockNotAvailable, QueryCanceled
from psycopg.pq import Conninfo, TransactionStatus

__all__ = [
    "AsyncConnection",
    "Connection",
    "Diagnostic",
    "DriverError",
    "InsufficientPrivilege",
    "IsolationLevel",
    "LockNotAvailable",
    "OperationalError",
    "ProgrammingError",
    "QueryCanceled",
    "Rollback",
    "TransactionStatus",
    "conninfo",
    "libpq_parameters",
    "sql",
]


def libpq_parameters() -> frozenset[str]:
    """The names of the parameters that a connection string may have."""
    return frozenset(option.keyword.decode() for option in Conninfo.get_defaults())
