"""Claims about an API whose database another release has migrated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import psycopg
import pytest

from faultline.postgres.migrate import latest_version
from tests.api.served import Served, client_of, code_of, make_key, served
from tests.cli.conftest import invoke

Connection = psycopg.Connection[Any]
OFTEN = 10  # enough for the driver to have prepared what it sends


@pytest.fixture
def server(database_url: str) -> Iterator[Served]:
    with served(database_url) as server:
        yield server


@pytest.fixture
def client(server: Served, database_url: str) -> Iterator[httpx2.Client]:
    with client_of(server, make_key(database_url)) as client:
        assert client.get("/ready").is_success
        for _ in range(OFTEN):
            assert client.post("/jobs", json={"task": "t"}).status_code == 201
        yield client


@contextmanager
def migrating(conn: Connection) -> Iterator[None]:
    """Everything in one transaction, as a migration of the next release."""
    with conn.transaction():
        yield
        conn.execute(
            "INSERT INTO faultline.migrations (version, name) VALUES (%s, 'of_tomorrow')",
            [latest_version() + 1],
        )


def value(conn: Connection, query: str, *params: Any) -> Any:
    row = conn.execute(query.encode(), params).fetchone()
    assert row is not None
    return row[0]


def jobs(conn: Connection) -> int:
    return int(value(conn, "SELECT count(*) FROM faultline.jobs"))


def test_an_api_of_the_release_before_stays_ready_while_its_jobs_are_taken(
    client: httpx2.Client, conn: Connection
) -> None:
    """Its function is another one, which takes more than the old one did."""
    function = "'faultline.enqueue_many'::regproc"
    takes = value(conn, f"SELECT pg_get_function_arguments({function})")
    made = value(conn, f"SELECT pg_get_functiondef({function})")
    takes_more = made.replace(f"({takes})", f"({takes}, of_tomorrow text DEFAULT NULL)")
    assert takes_more != made
    with migrating(conn):
        conn.execute("DROP FUNCTION faultline.enqueue_many")
        conn.execute("ALTER TABLE faultline.jobs ADD COLUMN of_tomorrow text")
        conn.execute(takes_more.encode())

    for _ in range(OFTEN):
        assert client.get("/ready").json() == {"status": "ready"}
        assert client.post("/jobs", json={"task": "t"}).status_code == 201
    assert jobs(conn) == 2 * OFTEN  # asking whether a job could be enqueued has enqueued none


def test_an_api_whose_jobs_the_schema_refuses_is_not_ready_and_says_why(
    server: Served, client: httpx2.Client, conn: Connection
) -> None:
    with migrating(conn):
        conn.execute("ALTER FUNCTION faultline.enqueue_many RENAME TO enqueue_all")

    answers = client.get("/ready"), client.post("/jobs", json={"task": "t"})
    for answer in answers:
        assert (answer.status_code, code_of(answer)) == (503, "schema_mismatch")
    error = server.wait_for_event("degraded", code="schema_mismatch")["error"]
    assert f"at schema version {latest_version() + 1}" in error
    assert "enqueue_many" in error
    assert "upgrade the faultline package" in error


def test_an_api_that_cannot_read_keys_is_not_ready(client: httpx2.Client, conn: Connection) -> None:
    with migrating(conn):
        conn.execute("ALTER TABLE faultline.api_keys RENAME TO keys")
    answer = client.get("/ready")
    assert (answer.status_code, code_of(answer)) == (503, "schema_mismatch")


def test_an_api_that_is_ahead_of_its_database_is_not_ready_until_that_is_migrated(
    server: Served, client: httpx2.Client, conn: Connection
) -> None:
    newest = latest_version()
    conn.execute("DELETE FROM faultline.migrations WHERE version = %s", [newest])
    answer = client.get("/ready")
    assert (answer.status_code, code_of(answer)) == (503, "schema_mismatch")
    error = server.wait_for_event("degraded", code="schema_mismatch")["error"]
    assert f"needs {newest}" in error
    assert "faultline migrate" in error
    conn.execute("INSERT INTO faultline.migrations (version, name) VALUES (%s, 'again')", [newest])
    assert client.get("/ready").is_success


@pytest.mark.parametrize("command", [["api"], ["inspector", "serve"]], ids=["api", "inspector"])
def test_a_starting_api_refuses_a_schema_of_another_version(
    database_url: str, empty_database_url: str, conn: Connection, command: list[str]
) -> None:
    with migrating(conn):
        pass
    newer = invoke(database_url, *command, "--port", "0").refused("schema_mismatch")
    assert newer.hint == "upgrade the faultline package; downgrading a database is not supported"
    none = invoke(empty_database_url, *command, "--port", "0").refused("schema_mismatch")
    assert none.hint == "faultline migrate"
