"""Who owns the schema once there are roles, and which accounts may migrate.

On servers of their own: roles belong to a whole server, and here it matters which account created them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo, sql
from psycopg.errors import InsufficientPrivilege

from faultline.embedded import Server, temporary_server
from faultline.errors import DatabaseRefused, DatabaseUnavailable
from faultline.postgres.errors import explain_error
from faultline.postgres.migrate import migrate, require_fence
from faultline.postgres.sessions import connect, run
from faultline.statements import epochs, protocol
from tests.conftest import TEST_SETTINGS, roomy_memory
from tests.waiting import wait_until

OWNERS = """
    SELECT array_agg(DISTINCT owner::regrole::text) FROM (
        SELECT nspowner FROM pg_namespace WHERE nspname = 'faultline'
        UNION ALL SELECT relowner FROM pg_class WHERE relnamespace = 'faultline'::regnamespace
        UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'faultline'::regnamespace
        UNION ALL SELECT typowner FROM pg_type WHERE typnamespace = 'faultline'::regnamespace
        UNION ALL SELECT stxowner FROM pg_statistic_ext WHERE stxnamespace = 'faultline'::regnamespace
    ) AS o (owner)
"""
HANDED_OVER = ["faultline_owner"]
ROOT = Path(__file__).parents[2]
GROUPS = (
    *("faultline_owner", "faultline_producer", "faultline_worker", "faultline_inspector"),
    "faultline_operator",
)


class Cluster:
    def __init__(self, server: Server) -> None:
        self._server = server

    def do(self, statement: str, *names: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as admin:
            admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def url(self, database: str, account: str | None = None) -> str:
        login = {"user": account, "password": "p"} if account else {}
        return conninfo.make_conninfo(self._server.url, dbname=database, **login)

    def database_of(self, account: str, attributes: str = "") -> str:
        """A database and an account that owns it, both of this name: the account's URL."""
        self.do(f"CREATE ROLE {{}} LOGIN {attributes} PASSWORD 'p'", account)
        self.do("CREATE DATABASE {} OWNER {}", account, account)
        return self.url(account, account)

    def owners(self, database: str) -> list[str]:
        with psycopg.connect(self.url(database)) as conn:
            row = conn.execute(OWNERS).fetchone()
        assert row is not None
        return list(row[0])


@pytest.fixture
def bare_cluster() -> Iterator[Cluster]:
    """Without any of the roles."""
    with temporary_server(settings=TEST_SETTINGS, parent=roomy_memory()) as server:
        yield Cluster(server)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server whose roles were made by `admin`: CREATEROLE, but not a superuser."""
    with temporary_server(settings=TEST_SETTINGS, parent=roomy_memory()) as server:
        made = Cluster(server)
        migrate(made.database_of("admin", "CREATEROLE"), roles=True)
        yield made


def pretend_to_be_older(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("DROP FUNCTION faultline.bury_workers(text[])")
        conn.execute("COMMENT ON SCHEMA faultline IS 'functions of an older version'")


def take_a_job_through(url: str) -> None:
    with connect(url) as conn:
        run(conn, protocol.enqueue("t", {}, queue="default", priority=5, max_attempts=1))
        [claim] = run(conn, protocol.claim("w", ["default"], batch_size=1, lease_seconds=60))
        run(conn, protocol.commit(claim))
        assert run(conn, protocol.in_ledger(claim))


def test_an_account_that_may_not_create_roles_is_told_what_to_run(bare_cluster: Cluster) -> None:
    url = bare_cluster.database_of("early")
    migrate(url)

    with pytest.raises(InsufficientPrivilege) as refused:
        migrate(url, roles=True)

    explained = explain_error(refused.value)
    assert "early may not create the role faultline_owner" in explained.message
    assert "GRANT faultline_owner TO early" in (explained.hint or "")
    assert bare_cluster.owners("early") == ["early"]


def test_an_account_that_may_create_roles_needs_no_superuser(cluster: Cluster) -> None:
    """As on managed services; from PostgreSQL 16 it administers only roles it created."""
    url = cluster.url("admin", "admin")

    assert cluster.owners("admin") == HANDED_OVER
    take_a_job_through(url)
    assert not migrate(url, roles=True).functions_replaced
    pretend_to_be_older(url)
    assert migrate(url).functions_replaced
    assert cluster.owners("admin") == HANDED_OVER


def test_an_account_that_is_not_a_member_is_told_what_to_run_and_can_then_migrate(
    cluster: Cluster,
) -> None:
    url = cluster.database_of("later")
    migrate(url)

    with pytest.raises(InsufficientPrivilege) as refused:
        migrate(url, roles=True)
    assert "run: GRANT faultline_owner TO later" in (explain_error(refused.value).hint or "")
    assert cluster.owners("later") == ["later"]

    cluster.do("GRANT faultline_owner TO later")
    migrate(url, roles=True)
    assert cluster.owners("later") == HANDED_OVER


def test_a_superuser_takes_the_schema_over_from_its_owner(cluster: Cluster) -> None:
    url = cluster.database_of("former")
    migrate(url)
    take_a_job_through(url)

    migrate(cluster.url("former"), roles=True)

    assert cluster.owners("former") == HANDED_OVER
    with psycopg.connect(url, autocommit=True) as conn, pytest.raises(InsufficientPrivilege):
        conn.execute("SELECT FROM faultline.jobs")
    take_a_job_through(cluster.url("former"))


def test_a_member_cannot_give_away_objects_of_another_owner(cluster: Cluster) -> None:
    migrate(cluster.database_of("third"))
    cluster.do("CREATE ROLE member LOGIN PASSWORD 'p' IN ROLE faultline_owner")

    with pytest.raises(InsufficientPrivilege) as refused:
        migrate(cluster.url("third", "member"), roles=True)

    assert "GRANT faultline_owner TO third" in (explain_error(refused.value).hint or "")
    assert cluster.owners("third") == ["third"]


@pytest.mark.parametrize("inherits", ["INHERIT", "NOINHERIT"])
def test_functions_that_another_member_upgrades_belong_to_the_owner_and_are_not_public(
    cluster: Cluster, inherits: str
) -> None:
    name = f"upgraded_{inherits.lower()}"
    cluster.database_of(name)
    migrate(cluster.url(name), roles=True)
    cluster.do(
        f"CREATE ROLE {{}} LOGIN {inherits} PASSWORD 'p' IN ROLE faultline_owner", f"m_{name}"
    )
    pretend_to_be_older(cluster.url(name))

    assert migrate(cluster.url(name, f"m_{name}")).functions_replaced

    assert cluster.owners(name) == HANDED_OVER
    with psycopg.connect(cluster.url(name)) as conn:
        may = "SELECT has_function_privilege(%s, 'faultline.bury_workers(text[])', 'EXECUTE')"
        assert conn.execute(may, ["faultline_worker"]).fetchone() == (True,)
        assert conn.execute(may, ["public"]).fetchone() == (False,)


def test_an_account_that_is_neither_member_nor_superuser_cannot_upgrade(cluster: Cluster) -> None:
    url = cluster.database_of("stranger")
    migrate(cluster.url("stranger"), roles=True)
    cluster.do("GRANT faultline_worker TO stranger")
    assert not migrate(url).functions_replaced  # nothing to do is nothing to refuse
    pretend_to_be_older(cluster.url("stranger"))

    with pytest.raises(DatabaseRefused, match="stranger is not a member") as refused:
        migrate(url)

    assert 'GRANT faultline_owner TO "stranger"' in (refused.value.hint or "")


def test_an_upgrade_without_roles_keeps_the_owner_and_revokes_old_rights(
    cluster: Cluster,
) -> None:
    """The roles of an earlier release belonged to the account that migrates."""
    url = cluster.database_of("earlier")
    migrate(url)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("GRANT USAGE ON SCHEMA faultline TO faultline_worker, faultline_producer")
        conn.execute("GRANT SELECT ON ALL TABLES IN SCHEMA faultline TO faultline_producer")
    pretend_to_be_older(url)

    assert migrate(url).functions_replaced

    assert cluster.owners("earlier") == ["earlier"]
    with psycopg.connect(url) as conn:
        readable = "SELECT has_table_privilege('faultline_producer', 'faultline.jobs', 'SELECT')"
        assert conn.execute(readable).fetchone() == (False,)


def test_tables_in_use_get_their_new_owner_once_they_are_unlocked(cluster: Cluster) -> None:
    cluster.database_of("busy")
    url = cluster.url("busy")
    migrate(url)
    # The user is closed before the thread is joined: it holds the lock that migrate waits for.
    with ThreadPoolExecutor(1) as thread, psycopg.connect(url) as user:
        user.execute("SELECT FROM faultline.ledger")

        with pytest.raises(DatabaseUnavailable, match="nothing was changed"):
            migrate(url, roles=True, lock_timeout_seconds=0.3)
        assert cluster.owners("busy") == ["postgres"]

        handing_over = thread.submit(migrate, url, roles=True, lock_timeout_seconds=60)
        wait_until_it_waits_for(cluster.url("busy"), "faultline.ledger")
        user.execute("SELECT FROM faultline.jobs")  # as a job of a worker does
        user.commit()
        handing_over.result(timeout=60)

    assert cluster.owners("busy") == HANDED_OVER


def wait_until_it_waits_for(url: str, table: str) -> None:
    waits = (
        "SELECT FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid AND NOT l.granted"
        " WHERE a.application_name = 'faultline migrate' AND l.relation = %s::regclass"
    )
    with psycopg.connect(url, autocommit=True) as watcher:
        wait_until(
            lambda: watcher.execute(waits, [table]).fetchone() is not None,
            f"the migration waits for {table}",
        )


def test_the_owner_sees_whether_the_server_was_restored(cluster: Cluster) -> None:
    """It is no superuser, and the fence's functions run as it."""
    cluster.database_of("seen")
    migrate(cluster.url("seen"), roles=True)

    with connect(cluster.url("seen")) as conn:
        require_fence(conn)
        here = run(conn, epochs.status()).here

    assert here.system_identifier is not None
    assert here.timeline == 1
    assert here.was_restored is False  # and not None: it may read that


@pytest.mark.slow
def test_the_commands_of_the_documentation_set_everything_up(cluster: Cluster) -> None:
    """The roles exist here already; the rest is run as it is written."""
    [commands] = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/security.md").read_text(), re.DOTALL)
    groups, accounts = commands.split("\n\n", 1)
    assert groups.split("\n") == [f"CREATE ROLE {role};" for role in GROUPS]
    cluster.do("CREATE DATABASE app")
    cluster.do(accounts)
    cluster.do("ALTER ROLE app_migrator PASSWORD 'p'; ALTER ROLE app_worker PASSWORD 'p'")

    migrate(cluster.url("app", "app_migrator"), roles=True)

    assert cluster.owners("app") == HANDED_OVER
    take_a_job_through(cluster.url("app", "app_worker"))
    with pytest.raises(DatabaseUnavailable, match="CONNECT"):
        connect(cluster.url("app", "admin"))
