"""Holds a snapshot, so that vacuum cannot remove dead rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import IsolationLevel

from faultline.postgres.sessions import connect


@contextmanager
def held_snapshot(url: str, *, held: bool) -> Iterator[None]:
    """Keep a REPEATABLE READ transaction idle while the block runs.

    If `held` is false, the session is open as well, but without a transaction.
    """
    with connect(url, application_name="faultline bench snapshot") as conn:
        if held:
            conn.autocommit = False
            conn.isolation_level = IsolationLevel.REPEATABLE_READ
            conn.execute("SELECT count(*) FROM faultline.workers")  # the snapshot is taken here
        yield
        conn.rollback()
