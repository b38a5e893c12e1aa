"""Migrations are applied once, all or nothing, beside other sessions."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

import psycopg
import pytest

from faultline import embedded
from faultline.postgres.migrate import (
    functions_sql,
    latest_version,
    migrate,
    migrations,
)
from tests.waiting import wait_until

Conn = psycopg.Connection[Any]

# Stops a migration of an empty database when the tables are there and the functions are being made,
# for as long as a session holds lock 42.
STOP_AT_THE_FENCE = """
    CREATE FUNCTION stop() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF to_regproc('faultline.refuse_stale') IS NOT NULL THEN
            PERFORM pg_advisory_xact_lock_shared(42);
        END IF;
    END $$;
    CREATE EVENT TRIGGER stop ON ddl_command_end EXECUTE FUNCTION stop();
"""
MIGRATORS = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name = 'faultline migrate' AND (NOT %s OR wait_event_type = 'Lock')
"""
A_FUNCTION = "SELECT pg_get_functiondef('faultline.broadcast(text)'::regprocedure)"


def session(url: str) -> Conn:
    return psycopg.connect(url, autocommit=True)


def value(conn: Conn, query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def migrators(conn: Conn, *, waiting: bool = False) -> int:
    row = conn.execute(MIGRATORS, [waiting]).fetchone()
    assert row is not None
    return int(row[0])


def schema_of(url: str, *, server_major: int) -> str:
    """The output of pg_dump, without comments and the random token of newer versions."""
    major, binaries = max(embedded.all_binaries().items())
    if major < server_major or not (binaries / "pg_dump").is_file():
        pytest.skip(f"no pg_dump for a server of version {server_major}")
    dump = subprocess.run(
        [binaries / "pg_dump", "--schema-only", "--no-comments", "--no-owner", "--dbname", url],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return re.sub(r"^(--|\\(un)?restrict).*\n", "", dump.stdout, flags=re.MULTILINE)


def test_migrations_lead_to_the_schema_of_schema_sql(
    database_url: str, empty_database_url: str
) -> None:
    with session(empty_database_url) as conn:
        conn.execute(resources.files("faultline.sql").joinpath("schema.sql").read_bytes())
        conn.execute(functions_sql().encode())
        server_major = conn.info.server_version // 10000

    written, migrated = (
        schema_of(url, server_major=server_major) for url in (empty_database_url, database_url)
    )
    assert "CREATE TABLE faultline.ledger" in written
    assert migrated == written


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert [migration.version for migration in migrations()] == list(
        range(1, len(migrations()) + 1)
    )


def test_every_sql_file_is_applied_by_migrate() -> None:
    texts = {
        entry.name: entry.read_text()
        for entry in resources.files("faultline.sql").iterdir()
        if entry.name.endswith(".sql")
    }
    beside = {"schema.sql", "roles.sql", "grants.sql"}  # applied by the tests, and with --roles

    assert beside < set(texts)
    assert [name for name in set(texts) - beside if texts[name] not in functions_sql()] == []


def test_a_migration_is_known_by_its_number_whatever_name_was_recorded(database_url: str) -> None:
    with session(database_url) as conn:
        conn.execute("UPDATE faultline.migrations SET name = 'as it was called before'")

    assert migrate(database_url).applied == ()


def test_the_report_says_what_was_applied(empty_database_url: str) -> None:
    report = migrate(empty_database_url)

    assert report.version == latest_version()
    assert report.applied[0] == "0001 initial"
    assert report.functions_replaced


def test_a_second_run_has_nothing_to_do(empty_database_url: str) -> None:
    migrate(empty_database_url)

    report = migrate(empty_database_url)

    assert (report.version, report.applied, report.functions_replaced) == (
        latest_version(),
        (),
        False,
    )


def test_a_run_with_nothing_to_do_passes_a_table_that_is_locked(database_url: str) -> None:
    with session(database_url) as busy, busy.transaction():
        busy.execute("LOCK TABLE faultline.jobs, faultline.ledger IN ACCESS EXCLUSIVE MODE")

        assert migrate(database_url, lock_timeout_seconds=5).applied == ()


def test_two_migrators_at_once_make_one_schema(empty_database_url: str) -> None:
    with session(empty_database_url) as watcher, ThreadPoolExecutor(2) as threads:
        watcher.execute(STOP_AT_THE_FENCE.encode())
        watcher.execute("SELECT pg_advisory_lock(42)")
        first = threads.submit(migrate, empty_database_url, lock_timeout_seconds=60)
        wait_until(lambda: migrators(watcher, waiting=True) == 1)
        second = threads.submit(migrate, empty_database_url, lock_timeout_seconds=60)
        wait_until(lambda: migrators(watcher, waiting=True) == 2)

        watcher.execute("SELECT pg_advisory_unlock(42)")

        assert len(first.result(timeout=60).applied) == len(migrations())
        assert second.result(timeout=60).applied == ()
        assert value(watcher, "SELECT count(*) FROM faultline.migrations") == latest_version()


def kill_a_migration_in_its_middle(url: str, watcher: Conn) -> None:
    call = "migrate(sys.argv[1], lock_timeout_seconds=60)"
    program = f"import sys; from faultline.postgres.migrate import migrate; {call}"
    migrator = subprocess.Popen([sys.executable, "-c", program, url])
    try:
        wait_until(lambda: migrators(watcher, waiting=True) == 1)
    finally:
        migrator.send_signal(signal.SIGKILL)
        migrator.wait(timeout=20)
        wait_until(lambda: migrators(watcher) == 0)


def test_a_first_migration_killed_half_way_leaves_nothing_and_can_be_run_again(
    empty_database_url: str,
) -> None:
    with session(empty_database_url) as watcher:
        watcher.execute(STOP_AT_THE_FENCE.encode())
        watcher.execute("SELECT pg_advisory_lock(42)")
        kill_a_migration_in_its_middle(empty_database_url, watcher)

        assert value(watcher, "SELECT to_regnamespace('faultline')") is None
        watcher.execute("SELECT pg_advisory_unlock(42)")

        assert len(migrate(empty_database_url).applied) == len(migrations())


def test_an_upgrade_killed_half_way_leaves_the_old_functions_and_can_be_run_again(
    database_url: str,
) -> None:
    with session(database_url) as watcher:
        ours = value(watcher, A_FUNCTION)
        watcher.execute("COMMENT ON SCHEMA faultline IS NULL")
        watcher.execute(ours.replace("< 0.5", "< 0.25").encode())
        older = value(watcher, A_FUNCTION)
        with session(database_url) as busy, busy.transaction():
            busy.execute("LOCK TABLE faultline.jobs IN ROW EXCLUSIVE MODE")
            kill_a_migration_in_its_middle(database_url, watcher)
        assert value(watcher, A_FUNCTION) == older

        assert migrate(database_url).functions_replaced

        assert value(watcher, A_FUNCTION) == ours


def test_functions_are_replaced_when_their_text_has_changed(database_url: str) -> None:
    with session(database_url) as conn:
        ours = value(conn, A_FUNCTION)
        conn.execute(ours.replace("< 0.5", "< 0.25").encode())
        conn.execute("COMMENT ON SCHEMA faultline IS 'functions of another release'")

        report = migrate(database_url)

        assert (report.applied, report.functions_replaced) == ((), True)
        assert value(conn, A_FUNCTION) == ours
