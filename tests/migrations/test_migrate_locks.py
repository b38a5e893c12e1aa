"""An upgrade locks tables in the same order as heartbeats, and never deadlocks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from faultline.postgres.migrate import Migration, latest_version, migrate, migrations
from tests.protocol.steps import claim_new, heartbeat, start_and_wait_until_blocked
from tests.waiting import wait_until

Conn = psycopg.Connection[Any]

OF_TOMORROW = Migration(
    latest_version() + 1,
    "of_tomorrow",
    "ALTER TABLE faultline.jobs ADD COLUMN of_tomorrow integer;"
    " ALTER TABLE faultline.workers ADD COLUMN of_tomorrow integer;",
)
# A heartbeat stops between its two tables for as long as a session holds lock 42.
STOP_BEFORE_THE_JOBS = """
    INSERT INTO faultline.workers (id, host, pid, queues, holds_locks) VALUES ('first', 'h', 1, '{}', false);
    CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(42);
        RETURN NULL;
    END $$;
    CREATE TRIGGER stop AFTER UPDATE ON faultline.workers EXECUTE FUNCTION stop();
"""
# Seen all at once: which tables the upgrade has for itself, and which it waits for.
TABLES_OF_THE_UPGRADE = """
    SELECT l.relation::regclass::text, l.granted FROM pg_locks AS l
    JOIN pg_stat_activity AS a ON a.pid = l.pid AND a.datname = current_database()
    WHERE a.application_name = 'faultline migrate' AND l.mode = 'AccessExclusiveLock'
"""


def tables_when_it_waits(watcher: Conn) -> dict[str, bool]:
    def seen() -> dict[str, bool]:
        tables = dict(watcher.execute(TABLES_OF_THE_UPGRADE).fetchall())
        return {} if all(tables.values()) else tables

    return wait_until(seen, "the upgrade waits for a table")


@pytest.mark.parametrize("roles", [False, True], ids=["altering", "handing over"])
def test_an_upgrade_holds_no_table_that_the_heartbeat_it_waits_for_still_needs(
    database_url: str, connect: Callable[[], Conn], monkeypatch: pytest.MonkeyPatch, roles: bool
) -> None:
    monkeypatch.setattr(
        "faultline.postgres.migrate.migrations", lambda: (*migrations(), OF_TOMORROW)
    )
    worker = connect()
    lease = claim_new(worker, worker="first")
    # The watcher is closed before the thread is joined: it holds the lock that stops the heartbeat.
    with ThreadPoolExecutor(1) as thread, connect() as watcher:
        watcher.execute(STOP_BEFORE_THE_JOBS.encode())
        watcher.execute("SELECT pg_advisory_lock(42)")
        beat = start_and_wait_until_blocked(watcher, worker, lambda conn: heartbeat(conn, lease))
        upgrade = thread.submit(migrate, database_url, roles=roles, lock_timeout_seconds=60)

        assert tables_when_it_waits(watcher) == {"faultline.workers": False}

        watcher.execute("SELECT pg_advisory_unlock(42)")
        assert beat.result(timeout=60) == ["renewed"]
        assert upgrade.result(timeout=60).applied == (f"{OF_TOMORROW.version:04} of_tomorrow",)
