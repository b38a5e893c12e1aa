"""The schema, as a long-running command looks at it before it begins."""

from __future__ import annotations

from collections.abc import Callable

from faultline.errors import DatabaseUnavailable
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import is_transient
from faultline.postgres.sessions import Connection, connect


def require_schema(url: str, check: Callable[[Connection], None]) -> None:
    """A wrong schema is an error at once; a server that is away is waited for, by who needs it first."""
    try:
        with connect(url, application_name="faultline cli") as conn:
            check(conn)
    except (DatabaseUnavailable, DriverError) as error:
        if not is_transient(error):
            raise
