"""Without a fault, the proxy changes nothing that passes through it."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from faultline_drills.proxy import MessageKind, Proxy
from tests.proxy.conftest import Through
from tests.waiting import wait_until


def test_a_result_of_many_megabytes_arrives_whole(through: Through) -> None:
    query = "SELECT n, repeat(md5(n::text), 10) FROM generate_series(1, 20000) AS n"
    rows = through().execute(query).fetchall()
    assert [number for number, _ in rows] == list(range(1, 20001))
    assert sum(len(text) for _, text in rows) == 20000 * 320


def test_a_parameter_of_many_megabytes_arrives_whole(through: Through) -> None:
    text = "fault" * 1_000_000
    assert through().execute("SELECT length(%s), md5(%s) = md5(%s)", [text] * 3).fetchone() == (
        len(text),
        True,
    )


def test_copy_passes_in_both_directions_and_is_one_message_however_many_rows(
    proxy: Proxy, through: Through
) -> None:
    conn = through()
    conn.execute("CREATE TABLE copied (n integer, t text)")
    before = proxy.message_count
    with conn.cursor() as cursor:
        with cursor.copy("COPY copied FROM STDIN") as copy:
            for number in range(5000):
                copy.write_row((number, "x" * 100))
        assert [message.kind for message in proxy.log[before:]] == [
            MessageKind.QUERY,
            MessageKind.COPY_END,
        ]
        with cursor.copy("COPY copied TO STDOUT") as copy:
            assert sum(1 for _ in copy.rows()) == 5000


def test_the_rows_of_a_copy_are_not_kept_until_its_end(
    through: Through, conn: psycopg.Connection[Any]
) -> None:
    copying = through()
    copying.execute("CREATE TABLE copied (t text)")
    progress = "SELECT bytes_processed > 500000 FROM pg_stat_progress_copy WHERE pid = %s"
    arrived, deadline = False, time.monotonic() + 30
    with copying.cursor() as cursor, cursor.copy("COPY copied FROM STDIN") as copy:
        while not arrived and time.monotonic() < deadline:
            copy.write("x" * 99_999 + "\n")
            row = conn.execute(progress, [copying.info.backend_pid]).fetchone()
            arrived = row is not None and row[0]
    assert arrived


def copy_and_fail(cursor: psycopg.Cursor[Any]) -> None:
    with cursor.copy("COPY copied FROM STDIN") as copy:
        copy.write_row((1,))
        raise ZeroDivisionError


def test_a_copy_that_fails_leaves_the_session_usable(through: Through) -> None:
    conn = through()
    conn.execute("CREATE TABLE copied (n integer)")
    with pytest.raises(ZeroDivisionError), conn.cursor() as cursor:
        copy_and_fail(cursor)
    assert conn.execute("SELECT count(*) FROM copied").fetchone() == (0,)


def test_a_pipeline_passes(proxy: Proxy, through: Through) -> None:
    conn = through()
    with conn.pipeline():
        cursors = [conn.execute("SELECT %s::int", [number]) for number in range(100)]
        assert [cursor.fetchone() for cursor in cursors] == [(n,) for n in range(100)]


def test_a_notification_arrives(through: Through, conn: psycopg.Connection[Any]) -> None:
    listener = through()
    listener.execute("LISTEN news")
    conn.execute("NOTIFY news, 'now'")
    assert [note.payload for note in listener.notifies(timeout=20, stop_after=1)] == ["now"]


def test_an_error_arrives_and_the_session_goes_on(through: Through) -> None:
    conn = through()
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("SELECT 1 / %s", [0])
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_request_to_cancel_reaches_the_server(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    sleeper = through("sleeper")
    backend = sleeper.info.backend_pid
    asleep = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"

    def cancel() -> None:
        """Cancel once it sleeps: an earlier request would have no effect."""
        wait_until(lambda: conn.execute(asleep, [backend]).fetchone() is not None, "its sleep")
        sleeper.cancel_safe()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        sleeper.execute("SELECT pg_sleep(60)")
    canceller.join()


def test_the_end_of_a_session_is_passed_on(
    proxy: Proxy, through: Through, conn: psycopg.Connection[Any]
) -> None:
    session = through("short")
    backend = session.info.backend_pid
    assert proxy.connection_of(backend_pid=backend).application == "short"
    session.close()
    wait = "SELECT pg_sleep(0.01) FROM pg_stat_activity WHERE pid = %s"
    rounds = 0
    while conn.execute(wait, [backend]).fetchone() is not None:
        rounds += 1
        assert rounds < 3000, "the server still has the session"


def test_what_the_server_says_about_the_transaction_is_known(
    proxy: Proxy, through: Through
) -> None:
    conn = through()
    connection = proxy.connection_of(backend_pid=conn.info.backend_pid)
    assert connection.transaction_status == "I"
    with conn.transaction(force_rollback=True):
        conn.execute("SELECT 1")
        assert connection.transaction_status == "T"
    assert connection.transaction_status == "I"
