"""What migrate, and programs that need it, say when they cannot continue."""

from __future__ import annotations

import traceback
from typing import Any

import psycopg
import pytest

from faultline.errors import DatabaseUnavailable, FaultlineError, SchemaMismatch
from faultline.postgres.migrate import MIGRATION_LOCK, migrate, require_current_schema
from faultline.postgres.sessions import connect


def session(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True)


def test_a_database_newer_than_the_code_is_refused_with_the_remedy(database_url: str) -> None:
    with connect(database_url) as conn:
        conn.execute("INSERT INTO faultline.migrations (version, name) VALUES (99, 'of_tomorrow')")

        for refused in (lambda: migrate(database_url), lambda: require_current_schema(conn)):
            with pytest.raises(SchemaMismatch, match="at schema version 99") as refusal:
                refused()
            assert "upgrade the faultline package" in (refusal.value.hint or "")


def test_an_empty_database_is_refused_with_the_command_that_helps(empty_database_url: str) -> None:
    with connect(empty_database_url) as conn:
        with pytest.raises(SchemaMismatch, match="has no Faultline schema") as refusal:
            require_current_schema(conn)
        migrate(empty_database_url)

        require_current_schema(conn)

    assert refusal.value.hint == "faultline migrate"


def test_a_migration_gives_up_on_a_table_that_stays_locked_and_says_so(database_url: str) -> None:
    with session(database_url) as busy:
        busy.execute("COMMENT ON SCHEMA faultline IS NULL")
        with busy.transaction():
            busy.execute("LOCK TABLE faultline.jobs IN ROW EXCLUSIVE MODE")

            with pytest.raises(
                DatabaseUnavailable, match=r"gave up after waiting 0\.1 s"
            ) as refusal:
                migrate(database_url, lock_timeout_seconds=0.1)

    assert "a long transaction holds a table" in (refusal.value.hint or "")
    assert migrate(database_url).functions_replaced


def test_a_migrator_that_waits_too_long_for_another_gives_up(empty_database_url: str) -> None:
    with session(empty_database_url) as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])

        with pytest.raises(DatabaseUnavailable, match="nothing was changed"):
            migrate(empty_database_url, lock_timeout_seconds=0.1)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:sekret@127.0.0.1:1/db",
        "postgresql://:sekret@127.0.0.1:1/db",
        "postgresql://me@127.0.0.1:1/db?password=sekret",
        "postgresql://me:sek%40sekret@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 user=me password=sekret",
        "host=127.0.0.1 port=1 user=me password = 'a sekret'",
        "postgresql://me:sekret@127.0.0.1:1/db?no_such_option=1",
        "postgresql:/me:sekret@127.0.0.1:1/db",
        "me:sekret@127.0.0.1:1/db",
        "postgresql://me:a sekret@127.0.0.1:1/db",
        "postgresql://me:%sekret@127.0.0.1:1/db",
        "postgresql://me:a@sekret@127.0.0.1:1/db",
        r"host=127.0.0.1 port=1 password='a\'sekret' user=me",
        "postgresql://me:a/sekret@127.0.0.1:1/db",
        "postgresql://me:sekret/a@127.0.0.1:1/db",
    ],
)
def test_a_password_never_appears_in_an_error(url: str) -> None:
    with pytest.raises(FaultlineError) as refusal:
        migrate(url)

    assert "sekret" not in "".join(traceback.format_exception(refusal.value))
