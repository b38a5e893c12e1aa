"""What a run of the zombie kit asks the database, beside those who take part in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from faultline.testing.zombies import referee
from tests.races.stepper import Actor

Connection = psycopg.Connection[Any]


def test_only_a_lock_of_those_who_are_meant_is_waited_for(
    conn: Connection, connect: Callable[[], Connection]
) -> None:
    """The others pass by themselves, and a stopped worker does not come back for them."""
    conn.execute("CREATE TABLE payments (invoice int UNIQUE)")
    stopped = connect()
    stopped.execute("BEGIN; INSERT INTO payments VALUES (1)")
    sessions_of_a = referee.other_sessions(conn)
    assert sessions_of_a == [stopped.info.backend_pid]
    mine, second = Actor(connect), Actor(connect)
    mine.begin()
    mine.run("INSERT INTO payments VALUES (2) RETURNING 1")

    second.start("INSERT INTO payments VALUES (2) RETURNING 1")
    assert second.is_blocked()
    assert not referee.somebody_waits_for(conn, sessions_of_a)
    mine.rollback()
    second.result()

    second.start("INSERT INTO payments VALUES (1) RETURNING 1")
    assert second.is_blocked()
    assert referee.somebody_waits_for(conn, sessions_of_a)
    stopped.execute("ROLLBACK")
    second.result()
