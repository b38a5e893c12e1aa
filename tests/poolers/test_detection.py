"""A pooler is detected in both modes, and nothing that it breaks is used."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from faultline.errors import DatabaseRefused, DatabaseUnavailable
from faultline.postgres.reconnecting import is_transient
from faultline.postgres.sessions import connect, open_session, open_session_async
from faultline_drills.servers.pooler import TRANSACTION, Pooler, pooler_to

from .conftest import require_pgbouncer


def test_a_pooled_session_is_detected_and_no_setting_is_changed_on_it(pooled_url: str) -> None:
    conn, session = open_session(pooled_url, application_name="test")
    with conn:
        assert session.is_pooled
        assert session.settings is None
        assert conn.prepare_threshold is None
        shown = conn.execute("SHOW client_connection_check_interval").fetchone()
        assert shown == ("0",)


def test_a_pooled_async_session_is_detected(pooled_url: str) -> None:
    async def look() -> tuple[bool, int | None]:
        conn, session = await open_session_async(pooled_url, application_name="test")
        async with conn:
            return session.is_pooled, conn.prepare_threshold

    assert asyncio.run(look()) == (True, None)


def test_a_direct_session_is_not_detected_as_pooled(
    database_url: str,
) -> None:
    conn, session = open_session(database_url, application_name="test")
    with conn:
        assert not session.is_pooled


def test_a_statement_can_be_repeated_on_changing_connections(
    pooler: Pooler, pooled_url: str, database_url: str
) -> None:
    """A statement prepared by the driver would be missing on the next connection."""
    with connect(pooled_url) as ours, psycopg.connect(database_url, autocommit=True) as admin:
        for _ in range(12):
            assert ours.execute("SELECT %s::int", [1]).fetchone() == (1,)
        query = "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'DEALLOCATE|PREPARE'"
        others_here = " AND pid <> pg_backend_pid() AND datname = current_database()"
        assert admin.execute(query + others_here).fetchone() == (0,)
        assert ours.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


@pytest.mark.parametrize(
    "setting",
    [
        "default_transaction_read_only = on",
        "default_transaction_isolation = serializable",
        "statement_timeout = 2ms",
        "DateStyle = German",
        "IntervalStyle = iso_8601",
    ],
)
def test_behind_a_pooler_an_account_setting_that_breaks_the_protocol_is_named(
    bottleneck: Pooler, database_url: str, setting: str
) -> None:
    """Otherwise a worker would wait for ever for a database that refuses statements."""
    name, value = setting.split(" = ")
    with psycopg.connect(database_url, autocommit=True) as admin:
        database = admin.info.dbname
        admin.execute(f"ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = '{value}'")
    with pytest.raises(DatabaseRefused, match=setting.split(" =")[0]) as refused:
        connect(bottleneck.url(database_url))
    assert "behind a pooler" in refused.value.message
    assert "ALTER ROLE" in str(refused.value.hint)
    assert not is_transient(refused.value)


def test_a_startup_parameter_that_the_pooler_refuses_is_named(pooled_url: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="unsupported startup parameter: options"):
        connect(f"{pooled_url} options='-c statement_timeout=5s'")


def test_a_startup_parameter_that_the_pooler_ignores_is_accepted(server_url: str) -> None:
    require_pgbouncer()
    settings = {"ignore_startup_parameters": "options"}
    with (
        pooler_to(server_url, mode=TRANSACTION, settings=settings) as lenient,
        connect(f"{lenient.url(server_url)} options='-c statement_timeout=5s'") as conn,
    ):
        assert conn.execute("SHOW statement_timeout").fetchone() == ("0",)
