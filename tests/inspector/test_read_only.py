"""The inspector cannot write: its sessions, its role and its imports prevent it."""

from __future__ import annotations

import ast
import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo
from psycopg.errors import InsufficientPrivilege, ReadOnlySqlTransaction
from starlette.testclient import TestClient

from faultline import inspector
from faultline.inspector import documents, overview
from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.inspector.reader import ROLE, Reader, ReadTransaction
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import AsyncConnection
from faultline.statements.statement import Statement

Connection = psycopg.Connection[Any]

WRITES = [
    "SELECT faultline.enqueue('task')",
    "SELECT faultline.cancel(gen_random_uuid())",
    "SELECT faultline.pause_queue('default')",
    "INSERT INTO faultline.jobs (task) VALUES ('task')",
    "UPDATE faultline.jobs SET priority = 0",
    "DELETE FROM faultline.rejections",
    "TRUNCATE faultline.attempts_log",
    "CREATE TABLE public.mine ()",
]


def looking(url: str, act: Callable[[Reader, ReadTransaction], Awaitable[None]]) -> None:
    async def run() -> None:
        reader = Reader(url, sessions=1)
        try:
            async with reader.transaction() as tx:
                await act(reader, tx)
        finally:
            await reader.close()

    asyncio.run(run())


def connection_of(tx: ReadTransaction) -> AsyncConnection:
    return tx._conn


@pytest.mark.parametrize("write", WRITES)
def test_a_read_transaction_cannot_write(database_url: str, conn: Connection, write: str) -> None:
    conn.execute("SELECT faultline.enqueue('task')")

    async def act(reader: Reader, tx: ReadTransaction) -> None:
        connection = connection_of(tx)
        with pytest.raises(ReadOnlySqlTransaction):
            await connection.execute(write.encode())
        await connection.execute("ROLLBACK")
        # Not even behind the look's back, in a transaction of its own.
        with pytest.raises(ReadOnlySqlTransaction):
            await connection.execute(write.encode())

    looking(database_url, act)


@pytest.mark.parametrize("write", WRITES[:-1])
def test_the_role_cannot_write_even_where_the_session_could(
    database_url: str, conn: Connection, write: str
) -> None:
    migrate(database_url, roles=True)
    conn.execute("SELECT faultline.enqueue('task')")

    async def act(reader: Reader, tx: ReadTransaction) -> None:
        assert reader.acts_as == ROLE
        connection = connection_of(tx)
        await connection.execute("ROLLBACK")
        await connection.execute("SET default_transaction_read_only = off")
        with pytest.raises(InsufficientPrivilege):
            await connection.execute(write.encode())

    looking(database_url, act)


def test_the_role_reads_everything_that_is_shown(database_url: str, conn: Connection) -> None:
    migrate(database_url, roles=True)
    row = conn.execute("SELECT job_id FROM faultline.enqueue('task')").fetchone()
    assert row is not None

    async def act(reader: Reader, tx: ReadTransaction) -> None:
        who = await tx.read(Statement("SELECT current_user", (), lambda rows: rows[0][0]))
        assert who == ROLE
        assert (await overview.read(tx)).counts
        assert (await documents.queue_counts(tx))["queues"]
        assert (await documents.job(tx, row[0], hides_details=True))["state"] == "queued"
        assert (await documents.job_timeline(tx, row[0]))["events"]
        assert (await documents.lease_page(tx, limit=1, after=None))["leases"] == []

    looking(database_url, act)


def test_the_role_does_not_see_the_keys_of_the_api(database_url: str) -> None:
    migrate(database_url, roles=True)

    async def act(reader: Reader, tx: ReadTransaction) -> None:
        with pytest.raises(InsufficientPrivilege):
            await connection_of(tx).execute("SELECT * FROM faultline.api_keys")
        await connection_of(tx).execute("ROLLBACK")

    looking(database_url, act)


def test_an_account_that_is_no_member_of_the_role_reads_as_itself(
    database_url: str, conn: Connection
) -> None:
    """The roles have no rights on this schema: acting as one would see nothing."""

    async def act(reader: Reader, tx: ReadTransaction) -> None:
        assert reader.acts_as is None
        mine = await tx.read(Statement("SELECT current_user", (), lambda rows: rows[0][0]))
        assert mine == conn.info.user

    looking(database_url, act)


@pytest.fixture
def account(database_url: str, conn: Connection) -> Iterator[tuple[str, str]]:
    """The name of an ordinary account, and the database's URL for it."""
    migrate(database_url, roles=True)
    name = f"looker_{secrets.token_hex(4)}"
    conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
    yield name, conninfo.make_conninfo(database_url, user=name, password="secret")
    conn.execute(f"DROP ROLE {name}".encode())


def test_an_account_with_only_the_role_can_read(account: tuple[str, str], conn: Connection) -> None:
    name, url = account
    conn.execute(f"GRANT faultline_inspector TO {name}".encode())
    with TestClient(
        make_app(InspectorSettings(database_url=url)), base_url="http://localhost"
    ) as client:
        assert client.get("/api/overview").status_code == 200
        assert client.get("/api/about").json()["acts_as"] == ROLE


def test_an_account_that_may_not_act_as_the_role_reads_with_what_it_inherits(
    account: tuple[str, str], conn: Connection
) -> None:
    if conn.info.server_version < 160000:
        pytest.skip("before 16 every member may act as the role")
    name, url = account
    conn.execute(f"GRANT faultline_inspector TO {name} WITH SET FALSE".encode())

    async def act(reader: Reader, tx: ReadTransaction) -> None:
        assert reader.acts_as is None
        assert (await overview.read(tx)).counts == []

    looking(url, act)


def test_an_account_without_rights_gets_an_error_that_names_the_role(
    account: tuple[str, str],
) -> None:
    with TestClient(
        make_app(InspectorSettings(database_url=account[1])), base_url="http://localhost"
    ) as client:
        answer = client.get("/api/overview")

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "database_refused")
    assert error["hint"].startswith("GRANT faultline_inspector")


def test_nothing_that_writes_is_imported() -> None:
    forbidden = {"workers", "reconciler", "api", "app", "job", "task", "upkeep", "migrate"}
    for path in Path(inspector.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        imported = {
            part
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("faultline")
            for part in (
                [alias.name for alias in node.names]
                if node.module == "faultline"
                else [(node.module or "").split(".")[1]]
            )
        }
        assert imported.isdisjoint(forbidden), (path.name, imported & forbidden)
