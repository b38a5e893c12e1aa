"""`faultline migrate` installs the schema, and changes nothing if it fails."""

from __future__ import annotations

import psycopg

from faultline.postgres.migrate import MIGRATION_LOCK

from .conftest import invoke


def test_the_first_run_lists_its_migrations_and_the_second_has_nothing_to_do(
    empty_database_url: str,
) -> None:
    first = invoke(empty_database_url, "migrate")
    assert first.code == 0
    assert "applied 0001 initial" in first.out
    second = invoke(empty_database_url, "migrate")
    assert second.out.startswith("nothing to do\nthe schema is at version ")


def test_roles_are_created_on_request(empty_database_url: str) -> None:
    assert "the roles exist" in invoke(empty_database_url, "migrate", "--roles").out
    with psycopg.connect(empty_database_url) as conn:
        query = "SELECT has_schema_privilege('faultline_worker', 'faultline', 'USAGE')"
        assert conn.execute(query).fetchone() == (True,)


def test_it_gives_up_when_another_migration_holds_the_lock(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        done = invoke(empty_database_url, "migrate", "--lock-timeout", "0.05")
    assert "nothing was changed" in done.refused("database_unavailable").message


def test_an_account_without_rights_gets_an_error_without_a_traceback(
    empty_database_url: str,
) -> None:
    name = empty_database_url.rsplit("/", 1)[1]
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE guest_{name} LOGIN PASSWORD 'guest'")
        admin.execute(f"REVOKE CREATE ON DATABASE {name} FROM PUBLIC")
        info = admin.info
        url = f"postgresql://guest_{name}:guest@{info.host}:{info.port}/{name}"
        try:
            refused = invoke(url, "migrate").refused("database_refused")
            assert "permission denied" in refused.message
        finally:
            admin.execute(f"DROP ROLE guest_{name}")
