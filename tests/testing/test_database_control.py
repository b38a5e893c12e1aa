"""The statements that an experiment sends to the database itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from faultline.testing.zombies import database_control
from tests.races.stepper import Actor

Connection = psycopg.Connection[Any]


def test_only_waits_for_locks_of_the_given_sessions_count(
    conn: Connection, connect: Callable[[], Connection]
) -> None:
    """Other waits end without help, so a stopped worker must not be resumed for them."""
    conn.execute("CREATE TABLE payments (invoice int UNIQUE)")
    stopped = connect()
    stopped.execute("BEGIN; INSERT INTO payments VALUES (1)")
    sessions_of_a = database_control.other_sessions(conn)
    assert sessions_of_a == [stopped.info.backend_pid]
    mine, second = Actor(connect), Actor(connect)
    mine.begin()
    mine.run("INSERT INTO payments VALUES (2) RETURNING 1")

    second.start("INSERT INTO payments VALUES (2) RETURNING 1")
    assert second.is_blocked()
    assert not database_control.any_session_waits_for(conn, sessions_of_a)
    mine.rollback()
    second.result()

    second.start("INSERT INTO payments VALUES (1) RETURNING 1")
    assert second.is_blocked()
    assert database_control.any_session_waits_for(conn, sessions_of_a)
    stopped.execute("ROLLBACK")
    second.result()
