"""`faultline verify` finds damage that the guards would have refused."""

from __future__ import annotations

from uuid import uuid4

import pytest

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.invariants import INVARIANTS

from .conftest import Connection, Faultline, claim, enqueue

ENTRY = (
    "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, worker)"
    " VALUES ((SELECT id FROM faultline.jobs), 1, gen_random_uuid(), 'w')"
)
DAMAGE = {
    "one_effect": [
        "ALTER TABLE faultline.ledger DROP CONSTRAINT ledger_pkey",
        ENTRY,
        ENTRY,
    ],
    "succeeded_is_in_the_ledger": ["UPDATE faultline.jobs SET state = 'succeeded'"],
    "the_ledger_means_succeeded": [ENTRY],
    "running_means_leased": [
        "UPDATE faultline.jobs SET state = 'running', lease_id = gen_random_uuid(),"
        " lease_owner = 'w', lease_expires_at = now()"
    ],
    "attempts_are_bounded": ["UPDATE faultline.jobs SET attempts = max_attempts + 1"],
    "expired_jobs_never_start": [
        "UPDATE faultline.jobs SET state = 'running', lease_id = gen_random_uuid(), fencing_token = 1,"
        " lease_owner = 'w', lease_expires_at = now(), attempts = 1, claimed_at = now(),"
        " expires_at = now() - interval '2 minutes'",
    ],
    "refusals_were_right": [
        ENTRY,
        "INSERT INTO faultline.rejections (job_id, worker, stale_token, reason, overlap)"
        " SELECT job_id, worker, 1, 'token_mismatch', '0' FROM faultline.ledger",
    ],
    "tokens_only_rise": [
        "INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome)"
        " SELECT id, 1, 99, 'failed' FROM faultline.jobs"
    ],
    "snoozes_are_merged": [
        "INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome)"
        " SELECT id, 1, 0, 'snoozed' FROM faultline.jobs, generate_series(1, 101)"
    ],
    "progress_is_of_a_claim": [
        "INSERT INTO faultline.job_progress (job_id, fencing_token, fraction)"
        " SELECT id, 1, 0.5 FROM faultline.jobs"
    ],
    "tokens_are_of_an_epoch": [
        "UPDATE faultline.jobs SET fencing_token = 1::bigint << 40, lease_id = gen_random_uuid()"
    ],
    "stored_texts_are_within_limits": [
        "ALTER DOMAIN faultline.payload DROP CONSTRAINT payload_is_at_most_8_mib",
        "UPDATE faultline.jobs SET payload ="
        " jsonb_build_object('a', array_fill(1e131000::numeric, ARRAY[9000]))",
    ],
    "running_jobs_have_their_places": [
        "SELECT faultline.set_limit('queue:default', 1)",
        "UPDATE faultline.jobs SET state = 'running', lease_id = gen_random_uuid(), fencing_token = 1,"
        " lease_owner = 'w', lease_expires_at = now()",
    ],
    "places_belong_to_running_jobs": [
        "INSERT INTO faultline.places SELECT 'queue:default', id, now() - interval '1 hour'"
        " FROM faultline.jobs",
    ],
    "limits_are_not_exceeded": [
        "SELECT faultline.set_limit('queue:default', 1)",
        "INSERT INTO faultline.places SELECT 'queue:default', id FROM faultline.jobs",
        "INSERT INTO faultline.places VALUES ('queue:default', 'ffffffff-ffff-4fff-8fff-ffffffffffff')",
    ],
    "rates_are_not_exceeded": [
        "SELECT faultline.set_limit('queue:default', NULL, 1, 3600, 2)",
        "INSERT INTO faultline.jobs (task, limited, state, failed_reason, claimed_at, finished_at)"
        " SELECT 'other', true, 'failed', 'cancelled', clock_timestamp(), now() FROM generate_series(1, 4)",
        "UPDATE faultline.jobs SET limited = true, state = 'failed', failed_reason = 'cancelled',"
        " claimed_at = clock_timestamp(), finished_at = now() WHERE NOT limited",
    ],
    "waiting_jobs_are_in_a_line": [
        "UPDATE faultline.jobs SET next_run_at = next_run_at + faultline.parked_for()"
    ],
    "one_job_counts_for_a_unique_key": [
        "INSERT INTO faultline.unique_jobs (job_id, unique_key, while_) SELECT id, 'k', 'queued'"
        " FROM faultline.jobs",
        "INSERT INTO faultline.jobs (id, task) VALUES (faultline.uuid7('2000-01-01'), 'other')",
        "INSERT INTO faultline.unique_jobs (job_id, unique_key, while_) SELECT id, 'k', 'queued'"
        " FROM faultline.jobs WHERE task = 'other'",
    ],
    "unique_keys_name_the_job_that_counts": [
        "INSERT INTO faultline.unique_jobs (job_id, unique_key, while_) SELECT id, 'k', 'queued'"
        " FROM faultline.jobs"
    ],
    "unique_jobs_exist": [
        "INSERT INTO faultline.unique_jobs (job_id, unique_key, while_) SELECT id, 'k', 'queued'"
        " FROM faultline.jobs",
        "DELETE FROM faultline.jobs",
    ],
    "a_schedule_has_recorded_what_it_decided": [
        "INSERT INTO faultline.schedules (name, task, every_seconds, declared_by, last_planned_at)"
        " VALUES ('s', 't', 60, 'operator', '2026-01-01')"
    ],
    "a_firing_has_its_job": [
        "INSERT INTO faultline.schedule_firings (schedule, planned_at, outcome, job_id)"
        " SELECT 's', '2026-01-01', 'fired', id FROM faultline.jobs"
    ],
    "a_scheduled_job_has_its_firing": ["UPDATE faultline.jobs SET scheduled_for = '2026-01-01'"],
    "the_fence_is_up": ["ALTER TABLE faultline.ledger DISABLE TRIGGER enter_ledger"],
}


def test_records_written_by_the_protocol_violate_no_invariant(
    faultline: Faultline, conn: Connection
) -> None:
    for _ in range(3):
        enqueue(conn)
    run(conn, protocol.commit(claim(conn)))
    run(conn, protocol.fail(claim(conn), error="boom"))
    claim(conn)
    done = faultline("verify")
    assert done.code == 0
    assert f"{len(INVARIANTS)} of {len(INVARIANTS)} invariants hold" in done.out
    assert faultline("verify", "--json").json["ok"] is True


def test_a_token_reissued_by_a_failover_is_no_violation(
    faultline: Faultline, conn: Connection
) -> None:
    enqueue(conn)
    held = claim(conn)
    conn.execute(
        "SELECT faultline.record_rejection(%s, %s, 'from before the failover', 'token_mismatch')",
        [held.job_id, held.fencing_token],
    )
    run(conn, protocol.commit(held))
    assert faultline("verify").code == 0


def test_every_invariant_is_violated_by_one_of_these_damages() -> None:
    assert set(DAMAGE) == {invariant.name for invariant in INVARIANTS}


@pytest.mark.parametrize("name", DAMAGE)
def test_planted_damage_is_found_with_evidence(
    faultline: Faultline, conn: Connection, name: str
) -> None:
    job_id = enqueue(conn)
    conn.execute("SET session_replication_role = replica")  # as a superuser may: no trigger fires
    for statement in DAMAGE[name]:
        conn.execute(statement)
    done = faultline("verify", "--json")
    assert done.code == 1
    assert done.json["ok"] is False
    [found] = [one for one in done.json["invariants"] if one["name"] == name]
    assert found["ok"] is False
    assert found["violations"] == 1
    assert found["evidence"][0]["job_id"] in (str(job_id), "-")

    shown = faultline("verify")
    assert shown.code == 1
    assert "VIOLATED" in shown.out
    assert found["evidence"][0]["evidence"] in shown.out


def test_the_evidence_of_much_damage_is_limited(faultline: Faultline, conn: Connection) -> None:
    conn.execute("SET session_replication_role = replica")
    conn.execute(
        "INSERT INTO faultline.jobs (id, task, state, failed_reason, attempts)"
        " SELECT gen_random_uuid(), 't', 'failed', 'x', 99 FROM generate_series(1, 50)"
    )
    assert "and at least 17 more" in faultline("verify").out


def test_a_ledger_entry_of_a_purged_job_is_no_violation(
    faultline: Faultline, conn: Connection
) -> None:
    conn.execute("SET session_replication_role = replica")
    conn.execute(
        "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id)"
        " VALUES (%s, 1, gen_random_uuid())",
        [uuid4()],
    )
    assert faultline("verify").code == 0
