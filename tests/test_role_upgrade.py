"""Roles, once created, hold for functions that come later."""

from __future__ import annotations

import psycopg

from faultline.migrate import migrate


def test_a_function_that_an_upgrade_adds_is_not_open_to_everyone(database_url: str) -> None:
    migrate(database_url, roles=True)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("DROP FUNCTION faultline.bury_workers(text[])")
        conn.execute("COMMENT ON SCHEMA faultline IS 'functions of an older version'")

        migrate(database_url)

        (open_to_everyone,) = conn.execute(
            "SELECT array_agg(proname) FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))"
            " WHERE pronamespace = 'faultline'::regnamespace AND grantee = 0 AND privilege_type = 'EXECUTE'"
        ).fetchone() or ("nothing",)
        assert open_to_everyone is None
        (worker_may,) = conn.execute(
            "SELECT has_function_privilege('faultline_worker', 'faultline.bury_workers(text[])', 'EXECUTE')"
        ).fetchone() or (False,)
        assert worker_may
