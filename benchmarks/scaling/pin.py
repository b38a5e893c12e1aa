"""A pinned snapshot: somebody's forgotten transaction, for whose sake no dead row may be removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import IsolationLevel

from faultline.postgres.sessions import connect


@contextmanager
def snapshot_held(url: str, *, held: bool) -> Iterator[None]:
    """While the block runs, a REPEATABLE READ transaction sits idle, as old as the block's start.

    With `held` false that session is there as well, but in no transaction.
    """
    with connect(url, application_name="faultline bench pin") as conn:
        if held:
            conn.autocommit = False
            conn.isolation_level = IsolationLevel.REPEATABLE_READ
            conn.execute("SELECT count(*) FROM faultline.workers")  # the snapshot is taken here
        yield
        conn.rollback()
