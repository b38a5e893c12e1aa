"""The drill's triggers record what the rules need, on machines of any speed."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.judging.checker import judge
from faultline_drills.recording.history import History
from faultline_drills.recording.tables import install_tables, read_database_state
from tests.conftest import Connect

LEASE_SECONDS = 60.0  # none expires during a test
SLOW = """
    CREATE FUNCTION drill.be_slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_sleep_until(NEW.lease_expires_at + interval '0.1 s'); RETURN NULL; END $$;
    CREATE TRIGGER a_slow_one AFTER UPDATE ON faultline.jobs
    FOR EACH ROW WHEN (NEW.state = 'succeeded') EXECUTE FUNCTION drill.be_slow();
"""
# In one message, so that no time passes between the two statements.
COMMIT_AT_THE_LAST_MOMENT = sql.SQL("""
    UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() + interval '1.5 s';
    SELECT faultline.commit({job}, {token}, {lease})
""")


def claimed(conn: psycopg.Connection[Any], worker: str) -> Claim:
    take = protocol.claim(worker, ["default"], batch_size=1, lease_seconds=LEASE_SECONDS)
    (claim,) = run(conn, take)
    return claim


def started(conn: psycopg.Connection[Any]) -> Claim:
    install_tables(conn)
    run(conn, protocol.enqueue("t", {}, queue="default", priority=5, max_attempts=5))
    return claimed(conn, "first")


def broken(conn: psycopg.Connection[Any]) -> set[str]:
    return {finding.rule for finding in judge(History(), read_database_state(conn)).findings}


def write_step(conn: psycopg.Connection[Any], claim: Claim) -> None:
    conn.execute(
        "INSERT INTO drill.effects (job_id, token, is_step) VALUES (%s, %s, true)",
        [claim.job_id, claim.fencing_token],
    )


def test_a_step_written_before_and_committed_after_a_takeover_is_a_violation(
    conn: psycopg.Connection[Any], connect: Connect
) -> None:
    claim, late = started(conn), connect()
    with late.transaction():  # no fence was checked, so nothing locks the job
        write_step(late, claim)
        run(conn, protocol.release(claim))
        claimed(conn, "second")
    assert "effects_carry_the_current_token" in broken(conn)


def test_a_step_that_commits_before_the_takeover_is_allowed(conn: psycopg.Connection[Any]) -> None:
    claim = started(conn)
    with conn.transaction():
        run(conn, protocol.assert_fence(claim))
        write_step(conn, claim)
    run(conn, protocol.release(claim))
    claimed(conn, "second")
    assert "effects_carry_the_current_token" not in broken(conn)


def test_a_commit_begun_before_lease_expiry_is_allowed_however_long_it_takes(
    conn: psycopg.Connection[Any],
) -> None:
    claim = started(conn)
    conn.execute(SLOW)
    fence = {"job": claim.job_id, "token": claim.fencing_token, "lease": claim.lease_id}
    conn.execute(COMMIT_AT_THE_LAST_MOMENT.format(**fence))
    (*_, claimed_row, done) = read_database_state(conn).transitions
    assert done.after == "succeeded"
    assert claimed_row.lease_expires_at is not None
    assert done.at > claimed_row.lease_expires_at  # by the clock alone it would look late
    assert "commit_rights_do_not_overlap" not in broken(conn)


def test_a_commit_begun_after_lease_expiry_is_a_violation(conn: psycopg.Connection[Any]) -> None:
    claim = started(conn)
    conn.execute(
        "CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid)"
        " RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT NULL::text $$"
    )
    conn.execute("UPDATE faultline.jobs SET lease_expires_at = clock_timestamp()")
    run(conn, protocol.commit(claim))
    assert "commit_rights_do_not_overlap" in broken(conn)
