"""Each fault affects the message or connection it was meant for, and no other."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from faultline_drills.proxy import Action, Direction, Match, Message, Proxy
from tests.proxy.conftest import Through
from tests.waiting import wait_until

BOUND_SECONDS = 30.0


@pytest.fixture(autouse=True)
def entries(conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE entries (n integer)")


def count(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT count(*) FROM entries").fetchone()
    assert row is not None
    return int(row[0])


def wait_for_count(conn: psycopg.Connection[Any], wanted: int) -> None:
    wait_until(lambda: count(conn) == wanted, f"{wanted} entries")


def wait_until_gone(conn: psycopg.Connection[Any], backend: int) -> None:
    wait_until(lambda: not is_known(conn, backend), "the end of the server session")


def is_known(conn: psycopg.Connection[Any], backend: int) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE pid = %s"
    return conn.execute(query, [backend]).fetchone() is not None


def enter_in_transaction(session: psycopg.Connection[Any]) -> None:
    with session.transaction():
        session.execute("INSERT INTO entries VALUES (%s)", [1])


class BackgroundInsert:
    """An insert in its own thread, since its reply may never come."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.error: psycopg.Error | None = None
        self._session = session
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            enter_in_transaction(self._session)
        except psycopg.Error as error:
            self.error = error

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> psycopg.Error | None:
        self._thread.join(BOUND_SECONDS)
        assert not self.is_waiting
        return self.error


def test_a_dropped_commit_is_not_done_and_the_connection_ends(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    seen: list[Message] = []
    session = through()
    backend = session.info.backend_pid
    interception = proxy.on(Match(text="COMMIT"), Action.DROP, seen.append)
    with pytest.raises(psycopg.OperationalError):
        enter_in_transaction(session)
    assert [message.text for message in seen] == ["COMMIT"]
    assert interception.message == seen[0]
    wait_until_gone(conn, backend)
    assert count(conn) == 0


def test_a_commit_whose_reply_is_dropped_has_happened(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    backend = session.info.backend_pid
    interception = proxy.on(Match(text="COMMIT"), Action.DROP_REPLY, lambda message: None)
    attempt = BackgroundInsert(session)
    assert interception.wait(BOUND_SECONDS) is not None
    assert count(conn) == 1  # the callback runs after the server's reply
    assert attempt.is_waiting
    proxy.connection_of(backend_pid=backend).reset()
    assert isinstance(attempt.end(), psycopg.OperationalError)


def test_only_the_matched_reply_is_dropped(proxy: Proxy, through: Through) -> None:
    session = through()
    proxy.on(
        Match(text="chosen", nth=2),
        Action.DROP_REPLY,
        lambda message: proxy.connection_of(connection=message.connection).close(),
    )
    assert session.execute("SELECT 1 AS chosen").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT 2 AS chosen")
    assert through().execute("SELECT 3 AS chosen").fetchone() == (3,)


def test_a_forwarded_commit_happens_and_its_reply_waits_for_the_callback(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    still_waiting: list[bool] = []

    def look(message: Message) -> None:
        wait_for_count(conn, 1)
        assert is_begun.wait(BOUND_SECONDS)  # the attempt may start later than the server commits
        still_waiting.append(attempt.is_waiting)

    session = through()
    is_begun = threading.Event()
    interception = proxy.on(Match(text="COMMIT"), Action.FORWARD, look)
    attempt = BackgroundInsert(session)
    is_begun.set()
    assert interception.wait(BOUND_SECONDS) is not None
    assert attempt.end() is None
    assert still_waiting == [True]


def test_a_held_commit_happens_when_it_is_released(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    interception = proxy.on(Match(text="COMMIT"), Action.HOLD)
    attempt = BackgroundInsert(through())
    assert interception.wait(BOUND_SECONDS) is not None
    assert count(conn) == 0
    proxy.release(interception)
    assert attempt.end() is None
    assert count(conn) == 1


def test_a_held_commit_arrives_although_its_client_is_gone(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    backend = session.info.backend_pid
    interception = proxy.on(Match(text="COMMIT"), Action.HOLD)
    attempt = BackgroundInsert(session)
    assert interception.wait(BOUND_SECONDS) is not None
    proxy.connection_of(backend_pid=backend).cut_client()
    assert isinstance(attempt.end(), psycopg.OperationalError)
    assert count(conn) == 0
    proxy.clear_faults()
    wait_for_count(conn, 1)


def test_a_reset_ends_the_session_on_both_sides(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    backend = session.info.backend_pid
    proxy.on(Match(text="pg_sleep"), Action.RESET)
    with pytest.raises(psycopg.OperationalError, match=r"reset|closed"):
        session.execute(
            "SET client_connection_check_interval = '50ms'; SELECT 1 FROM pg_sleep(600)"
        )
    wait_until_gone(conn, backend)


def test_all_connections_or_those_of_one_application_can_be_reset(
    proxy: Proxy, through: Through
) -> None:
    mine, other = through("mine"), through("other")
    assert proxy.reset_all(application="mine") == 1
    with pytest.raises(psycopg.OperationalError):
        mine.execute("SELECT 1")
    assert other.execute("SELECT 1").fetchone() == (1,)
    wait_until(lambda: len(proxy.connections) == 1, "the end of the other connection")
    assert proxy.reset_all() == 1


def test_the_server_keeps_the_session_of_a_client_that_was_cut(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    backend = session.info.backend_pid
    session.execute("SELECT pg_advisory_lock(1)")
    proxy.connection_of(backend_pid=backend).cut_client()
    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT 1")
    assert conn.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (False,)
    assert is_known(conn, backend)


def test_the_client_keeps_waiting_for_a_server_that_was_cut(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    backend = session.info.backend_pid
    interception = proxy.on(Match(text="INSERT"), Action.CUT_SERVER)
    attempt = BackgroundInsert(session)
    assert interception.wait(BOUND_SECONDS) is not None
    wait_until_gone(conn, backend)
    assert attempt.is_waiting
    proxy.reset_all()
    assert isinstance(attempt.end(), psycopg.OperationalError)


def test_a_blackhole_holds_both_directions_and_new_connections_until_cleared(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    proxy.blackhole()
    attempt = BackgroundInsert(session)
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        through(connect_timeout=2)
    assert attempt.is_waiting
    assert count(conn) == 0
    proxy.clear_faults()
    assert attempt.end() is None
    assert count(conn) == 1


def test_a_blackhole_to_the_client_lets_statements_through(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    proxy.blackhole(direction=Direction.TO_CLIENT)
    session.pgconn.send_query(b"INSERT INTO entries VALUES (1)")
    session.pgconn.flush()
    wait_for_count(conn, 1)
    proxy.clear_faults()


def test_a_blackhole_to_the_server_lets_notifications_through(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    listener = through("listener")
    listener.execute("LISTEN news")
    proxy.blackhole(direction=Direction.TO_SERVER)
    conn.execute("NOTIFY news, 'heard'")
    notices = listener.notifies(timeout=BOUND_SECONDS, stop_after=1)
    assert [note.payload for note in notices] == ["heard"]
    listener.pgconn.send_query(b"INSERT INTO entries VALUES (1)")
    listener.pgconn.flush()
    conn.execute("NOTIFY news, 'and still'")
    listener.pgconn.consume_input()
    assert count(conn) == 0
    proxy.clear_faults()
    wait_for_count(conn, 1)


def test_a_blackhole_for_one_application_leaves_the_others_alone(
    proxy: Proxy, through: Through
) -> None:
    lost, other = through("lost"), through("other")
    proxy.blackhole(application="lost")
    attempt = BackgroundInsert(lost)
    enter_in_transaction(other)
    assert attempt.is_waiting
    proxy.clear_faults()
    assert attempt.end() is None


def test_the_end_of_a_client_behind_a_blackhole_is_not_noticed(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    backend = session.info.backend_pid
    session.execute("SELECT pg_advisory_lock(1)")
    proxy.blackhole()
    session.close()
    assert conn.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (False,)
    proxy.clear_faults()
    wait_until_gone(conn, backend)


def test_delays_apply_to_each_direction_and_keep_the_order(proxy: Proxy, through: Through) -> None:
    session = through()
    proxy.delay(0.05, jitter=0.04, seed=7)
    began = time.monotonic()
    for number in range(5):
        assert session.execute("SELECT %s::int", [number]).fetchone() == (number,)
    assert time.monotonic() - began > 10 * (0.05 - 0.04)
    proxy.clear_faults()


def test_connections_are_refused_until_faults_are_cleared(proxy: Proxy, through: Through) -> None:
    proxy.refuse_connections()
    with pytest.raises(psycopg.OperationalError):
        through()
    proxy.clear_faults()
    assert through().execute("SELECT 1").fetchone() == (1,)


def test_an_error_of_a_callback_is_raised_at_the_end(database_url: str) -> None:
    from faultline_drills.proxy import proxy_to

    def fail(message: Message) -> None:
        raise ZeroDivisionError

    def connect_and_fail() -> None:
        with proxy_to(database_url) as proxy:
            proxy.on(Match(text="SELECT"), Action.FORWARD, fail)
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(proxy.url).execute("SELECT 1")

    with pytest.raises(ZeroDivisionError):
        connect_and_fail()
