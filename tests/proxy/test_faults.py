"""What is told to fail fails, at the message that was meant, and nothing else does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from faultline_drills.proxy import Action, Direction, Match, Message, Proxy
from tests.proxy.conftest import Through

BOUND_SECONDS = 30.0


@pytest.fixture(autouse=True)
def entries(conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE entries (n integer)")


def count(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT count(*) FROM entries").fetchone()
    assert row is not None
    return int(row[0])


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.005)


def wait_for_count(conn: psycopg.Connection[Any], wanted: int) -> None:
    wait_until(lambda: count(conn) == wanted, f"{wanted} entries")


def wait_until_gone(conn: psycopg.Connection[Any], backend: int) -> None:
    wait_until(lambda: not is_known(conn, backend), "the end of the session at the server")


def is_known(conn: psycopg.Connection[Any], backend: int) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE pid = %s"
    return conn.execute(query, [backend]).fetchone() is not None


def enter_in_transaction(session: psycopg.Connection[Any]) -> None:
    with session.transaction():
        session.execute("INSERT INTO entries VALUES (%s)", [1])


class Attempt:
    """An entry in a thread of its own, since its answer may never come."""

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


def test_a_commit_is_done_although_its_answer_is_swallowed(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    backend = session.info.backend_pid
    interception = proxy.on(Match(text="COMMIT"), Action.DROP_REPLY, lambda message: None)
    attempt = Attempt(session)
    assert interception.wait(BOUND_SECONDS) is not None
    assert count(conn) == 1  # the server had answered when the callback was called
    assert attempt.is_waiting
    proxy.connection_of(backend_pid=backend).reset()
    assert isinstance(attempt.end(), psycopg.OperationalError)


def test_only_the_answer_that_was_meant_is_swallowed(proxy: Proxy, through: Through) -> None:
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


def test_a_forwarded_commit_is_done_and_its_answer_waits_for_the_callback(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    still_waiting: list[bool] = []

    def look(message: Message) -> None:
        wait_for_count(conn, 1)
        assert is_begun.wait(BOUND_SECONDS)  # whoever began it may be slower than the server is
        still_waiting.append(attempt.is_waiting)

    session = through()
    is_begun = threading.Event()
    interception = proxy.on(Match(text="COMMIT"), Action.FORWARD, look)
    attempt = Attempt(session)
    is_begun.set()
    assert interception.wait(BOUND_SECONDS) is not None
    assert attempt.end() is None
    assert still_waiting == [True]


def test_a_held_commit_happens_when_it_is_released(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    interception = proxy.on(Match(text="COMMIT"), Action.HOLD)
    attempt = Attempt(through())
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
    attempt = Attempt(session)
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


def test_everything_can_be_reset_at_once_or_what_one_application_has(
    proxy: Proxy, through: Through
) -> None:
    mine, other = through("mine"), through("other")
    assert proxy.reset_all(application="mine") == 1
    with pytest.raises(psycopg.OperationalError):
        mine.execute("SELECT 1")
    assert other.execute("SELECT 1").fetchone() == (1,)
    wait_until(lambda: len(proxy.connections) == 1, "the end of the other connection")
    assert proxy.reset_all() == 1


def test_a_client_that_is_cut_off_is_still_believed_alive_by_the_server(
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


def test_a_server_that_is_cut_off_is_still_believed_alive_by_the_client(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    backend = session.info.backend_pid
    interception = proxy.on(Match(text="INSERT"), Action.CUT_SERVER)
    attempt = Attempt(session)
    assert interception.wait(BOUND_SECONDS) is not None
    wait_until_gone(conn, backend)
    assert attempt.is_waiting
    proxy.reset_all()
    assert isinstance(attempt.end(), psycopg.OperationalError)


def test_a_blackhole_holds_both_directions_and_new_connections_until_it_flows_again(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    proxy.blackhole()
    attempt = Attempt(session)
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        through(connect_timeout=2)
    assert attempt.is_waiting
    assert count(conn) == 0
    proxy.clear_faults()
    assert attempt.end() is None
    assert count(conn) == 1


def test_where_only_answers_are_lost_the_work_is_done(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through()
    proxy.blackhole(direction=Direction.TO_CLIENT)
    session.pgconn.send_query(b"INSERT INTO entries VALUES (1)")
    session.pgconn.flush()
    wait_for_count(conn, 1)
    proxy.clear_faults()


def test_where_only_requests_are_lost_what_the_server_says_arrives(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    listener = through("listener")
    listener.execute("LISTEN news")
    proxy.blackhole(direction=Direction.TO_SERVER)
    conn.execute("NOTIFY news, 'heard'")
    heard = listener.notifies(timeout=BOUND_SECONDS, stop_after=1)
    assert [note.payload for note in heard] == ["heard"]
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
    attempt = Attempt(lost)
    enter_in_transaction(other)
    assert attempt.is_waiting
    proxy.clear_faults()
    assert attempt.end() is None


def test_a_death_behind_a_blackhole_is_not_told(
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


def test_a_slow_network_takes_its_time_each_way_and_keeps_the_order(
    proxy: Proxy, through: Through
) -> None:
    session = through()
    proxy.delay(0.05, jitter=0.04, seed=7)
    began = time.monotonic()
    for number in range(5):
        assert session.execute("SELECT %s::int", [number]).fetchone() == (number,)
    assert time.monotonic() - began > 10 * (0.05 - 0.04)
    proxy.clear_faults()


def test_connections_are_refused_until_it_flows_again(proxy: Proxy, through: Through) -> None:
    proxy.refuse_connections()
    with pytest.raises(psycopg.OperationalError):
        through()
    proxy.clear_faults()
    assert through().execute("SELECT 1").fetchone() == (1,)


def test_a_callback_that_fails_is_not_forgotten(database_url: str) -> None:
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
