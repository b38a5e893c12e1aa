"""Everything works for an account that only owns its database (managed servers)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import conninfo, sql

from faultline.errors import SchemaMismatch
from faultline.postgres.migrate import migrate, require_fence
from faultline.postgres.sessions import connect, run
from faultline.statements import protocol


@pytest.fixture
def owner_url(empty_database_url: str) -> Iterator[str]:
    name = f"owner_{secrets.token_hex(4)}"
    database = conninfo.conninfo_to_dict(empty_database_url)["dbname"]
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        role = sql.Identifier(name)
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'p'").format(role))
        admin.execute(
            sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(str(database)), role)
        )
        yield conninfo.make_conninfo(empty_database_url, user=name, password="p")
        admin.execute(sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(role))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))


def test_a_plain_owner_can_migrate_and_run_the_protocol(owner_url: str) -> None:
    migrate(owner_url)
    with connect(owner_url) as conn:
        for _ in range(3):
            run(conn, protocol.enqueue("t", {}, queue="default", priority=5, max_attempts=1))
        first, second, third = run(
            conn, protocol.claim("w", ["default"], batch_size=3, lease_seconds=60)
        )
        run(conn, protocol.commit(first))
        assert [v.outcome for v in run(conn, protocol.commit_many([second], [None]))] == [
            "committed"
        ]
        run(conn, protocol.fail(third, error="x"))
        assert run(conn, protocol.retry(third.job_id)) == "queued"


def test_a_database_that_has_lost_a_trigger_is_refused_and_repaired(database_url: str) -> None:
    with connect(database_url) as conn:
        conn.execute("DROP TRIGGER enter_ledger ON faultline.ledger")
        with pytest.raises(SchemaMismatch, match="missing or disabled"):
            require_fence(conn)

        assert migrate(database_url).functions_replaced
        require_fence(conn)


def test_server_properties_it_could_not_read_are_recorded_when_a_more_privileged_owner_migrates(
    owner_url: str, empty_database_url: str
) -> None:
    migrate(owner_url)
    with connect(owner_url) as conn:
        seen = "SELECT restored_from::text FROM faultline.epochs"
        assert conn.execute(seen).fetchone() == (None,)
    migrate(empty_database_url, roles=True)
    with connect(empty_database_url) as conn:
        assert conn.execute(seen).fetchone() == ("-infinity",)
