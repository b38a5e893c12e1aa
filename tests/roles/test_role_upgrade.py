"""Roles have the right grants for functions that an upgrade adds."""

from __future__ import annotations

import psycopg

from faultline.postgres.migrate import migrate


def test_a_function_that_an_upgrade_adds_has_the_rights_of_a_new_install(database_url: str) -> None:
    migrate(database_url, roles=True)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("DROP FUNCTION faultline.bury_workers(text[])")
        conn.execute("COMMENT ON SCHEMA faultline IS 'functions of an older version'")

        migrate(database_url)

        (open_to_everyone,) = conn.execute(
            "SELECT array_agg(proname::text)"
            " FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))"
            " WHERE pronamespace = 'faultline'::regnamespace AND grantee = 0 AND privilege_type = 'EXECUTE'"
        ).fetchone() or ("nothing",)
        assert open_to_everyone == ["json_text_bound"]  # for the CHECK of the ledger
        (worker_may,) = conn.execute(
            "SELECT has_function_privilege('faultline_worker', 'faultline.bury_workers(text[])', 'EXECUTE')"
        ).fetchone() or (False,)
        assert worker_may
