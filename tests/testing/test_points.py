"""Every message that a handler sends to the database is a point."""

from __future__ import annotations

import psycopg
from psycopg_pool import ConnectionPool

from faultline.testing.zombies.instrumentation import patched_driver
from faultline.testing.zombies.monitor import current_monitor
from tests.unit.testing.zombies.test_points import make_monitor


def test_everything_sent_to_the_database_is_a_point(own_url: str) -> None:
    def handler() -> None:
        with psycopg.connect(own_url) as conn:
            conn.execute("CREATE TEMP TABLE t (n int)")
            conn.commit()
            conn.commit()  # no transaction is open
            with conn.cursor() as cursor:
                cursor.executemany("INSERT INTO t VALUES (%s)", [(1,), (2,)])
                with cursor.copy("COPY t FROM STDIN") as copy:
                    copy.write_row([3])
            conn.rollback()
            conn.autocommit = True
            with conn.transaction(), conn.transaction():
                conn.execute("SELECT\n  faultline.uuid7()")
        check = ConnectionPool.check_connection
        with ConnectionPool(own_url, min_size=1, check=check) as pool, pool.connection() as conn:
            conn.execute("SELECT 1 AS " + "long" * 20)

    monitor = make_monitor(handler)
    with patched_driver():
        reset = current_monitor.set(monitor)
        handler()
        current_monitor.reset(reset)
    whats = [point.what for point in monitor.points]
    assert whats[:2] == ["CREATE TEMP TABLE t (n int)", "COMMIT"]
    assert whats[2] == "INSERT INTO t VALUES (%s)"
    assert "COPY t FROM STDIN" in whats
    assert whats[-6:] == [
        "ROLLBACK",
        "faultline.uuid7()",
        "COMMIT",  # of the savepoint
        "COMMIT",
        "SELECT 1 AS longlonglonglonglonglonglonglonglon…",
        "COMMIT",
    ]
    assert [point.what for point in monitor.points if point in monitor.answers] == [
        "COMMIT",
        "ROLLBACK",
        "COMMIT",
        "COMMIT",
    ]


def test_a_savepoint_of_django_has_the_same_name_in_every_thread(own_url: str) -> None:
    def handler(thread: int) -> None:
        with psycopg.connect(own_url) as conn:
            conn.execute(f'SAVEPOINT "s{thread}_x3"')

    found = []
    for thread in (17, 140_569):
        monitor = make_monitor(handler)
        with patched_driver():
            reset = current_monitor.set(monitor)
            handler(thread)
            current_monitor.reset(reset)
        found.append([point.what for point in monitor.points])
    assert found == [['SAVEPOINT "s3"', "COMMIT"]] * 2
