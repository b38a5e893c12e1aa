"""The guards refuse illegal changes of jobs and the ledger from any client."""

from __future__ import annotations

import psycopg
import pytest

from .steps import (
    Connection,
    Lease,
    cancel,
    claim_new,
    commit,
    committed,
    enqueue,
    enter,
    entries,
    job,
    refused,
    release,
    set_job,
    state,
)

A_NEW_LEASE = "fencing_token = fencing_token + 1, lease_id = gen_random_uuid()"
HELD = "lease_owner = 'me', lease_expires_at = clock_timestamp() + interval '1 hour'"
UNFINISHED = "failed_reason = NULL, finished_at = NULL"


def released(conn: Connection) -> Lease:
    lease = claim_new(conn)
    release(conn, lease)
    return lease


@pytest.mark.parametrize(
    "change",
    [
        "state = 'queued'",
        f"state = 'running', {A_NEW_LEASE}, {HELD}",
        "state = 'failed', failed_reason = 'by hand'",
        A_NEW_LEASE,
        "fencing_token = fencing_token + 1",
        "lease_id = gen_random_uuid()",
    ],
)
def test_a_job_that_succeeded_stays_as_it_is(conn: Connection, change: str) -> None:
    lease = committed(conn)
    before = job(conn, lease.job_id)
    with refused("FL002"):
        set_job(conn, lease.job_id, change)
    assert job(conn, lease.job_id) == before


def test_a_waiting_job_cannot_succeed_by_a_plain_update(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    with refused("FL002"):
        set_job(conn, job_id, "state = 'succeeded'")


def test_a_running_job_cannot_succeed_by_a_plain_update(conn: Connection) -> None:
    lease = claim_new(conn)
    with refused("FL002"):
        set_job(conn, lease.job_id, "state = 'succeeded'")


@pytest.mark.parametrize("verb", ["retry", "retention", ""])
def test_a_job_cannot_succeed_under_another_verb(conn: Connection, verb: str) -> None:
    lease = claim_new(conn)
    conn.execute(f"SET faultline.verb = '{verb}'")
    with refused("FL002"):
        set_job(conn, lease.job_id, "state = 'succeeded'")


@pytest.mark.parametrize(
    "change",
    [
        f"state = 'queued', {UNFINISHED}",
        f"state = 'running', {UNFINISHED}, {A_NEW_LEASE}, {HELD}",
        f"state = 'succeeded', {UNFINISHED}",
    ],
)
def test_a_failed_job_cannot_be_queued_by_a_plain_update(conn: Connection, change: str) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    with refused("FL002"):
        set_job(conn, lease.job_id, change)
    assert state(conn, lease.job_id) == "failed"


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("state", "'succeeded'"),
        ("state, failed_reason", "'failed', 'by hand'"),
        (
            "state, fencing_token, lease_id, lease_owner, lease_expires_at",
            "'running', 1, gen_random_uuid(), 'me', clock_timestamp() + interval '1 hour'",
        ),
        ("fencing_token", "1"),
        ("fencing_token", "-1"),
        ("lease_id", "gen_random_uuid()"),
    ],
)
def test_a_new_job_cannot_have_any_state_but_queued(
    conn: Connection, columns: str, values: str
) -> None:
    with refused("FL002"):
        conn.execute(f"INSERT INTO faultline.jobs (task, {columns}) VALUES ('t', {values})")


def test_a_queued_job_may_be_inserted_by_a_plain_insert(conn: Connection) -> None:
    conn.execute("INSERT INTO faultline.jobs (task) VALUES ('send_mail')")


def test_the_id_of_a_job_never_changes(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    with refused("FL002"):
        set_job(conn, job_id, "id = gen_random_uuid()")


def test_a_token_never_goes_down(conn: Connection) -> None:
    lease = released(conn)
    with refused("FL003"):
        set_job(conn, lease.job_id, "fencing_token = 0, lease_id = gen_random_uuid()")


def test_no_job_runs_again_under_a_token_that_was_issued(conn: Connection) -> None:
    lease = released(conn)
    with refused("FL003"):
        set_job(conn, lease.job_id, f"state = 'running', {HELD}")


def test_no_job_gets_a_new_lease_under_the_same_token(conn: Connection) -> None:
    lease = claim_new(conn)
    with refused("FL003"):
        set_job(conn, lease.job_id, "lease_id = gen_random_uuid()")


def test_no_lease_is_removed_from_a_job_that_keeps_its_token(conn: Connection) -> None:
    lease = released(conn)
    with refused("FL003"):
        set_job(conn, lease.job_id, "lease_id = NULL")


def test_no_token_is_raised_under_one_lease(conn: Connection) -> None:
    lease = claim_new(conn)
    with refused("FL003"):
        set_job(conn, lease.job_id, "fencing_token = fencing_token + 1")


def test_an_update_that_draws_a_token_and_a_lease_is_accepted_as_a_claim(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    set_job(conn, job_id, f"state = 'running', {A_NEW_LEASE}, {HELD}")
    stored = job(conn, job_id)
    commit(conn, Lease(job_id, stored["fencing_token"], stored["lease_id"]))


def test_a_running_job_without_an_owner_is_refused(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    with pytest.raises(psycopg.errors.CheckViolation, match="running_has_a_lease"):
        set_job(conn, job_id, f"state = 'running', {A_NEW_LEASE}")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE faultline.ledger SET result = '1'",
        "UPDATE faultline.ledger SET fencing_token = fencing_token + 1",
        "DELETE FROM faultline.ledger",
        "TRUNCATE faultline.ledger",
        "TRUNCATE faultline.jobs, faultline.ledger CASCADE",
    ],
)
def test_a_ledger_entry_is_never_changed(conn: Connection, statement: str) -> None:
    lease = committed(conn)
    with refused("FL002"):
        conn.execute(statement)
    assert entries(conn) == [lease]


@pytest.mark.parametrize("verb", ["commit", "retry", ""])
def test_no_verb_but_retention_removes_an_entry(conn: Connection, verb: str) -> None:
    committed(conn)
    conn.execute(f"SET faultline.verb = '{verb}'")
    with refused("FL002"):
        conn.execute("DELETE FROM faultline.ledger")


def test_a_users_own_trigger_is_held_to_the_same_rules(conn: Connection, effects: str) -> None:
    lease = claim_new(conn)
    conn.execute(
        "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " UPDATE faultline.jobs SET state = 'succeeded' WHERE id = NEW.job_id; RETURN NEW; END $$;"
        f"CREATE TRIGGER meddle AFTER INSERT ON {effects} FOR EACH ROW EXECUTE FUNCTION meddle()"
    )
    with refused("FL002"):
        conn.execute(f"INSERT INTO {effects} VALUES (%s, 'trigger')", [lease.job_id])
    assert state(conn, lease.job_id) == "running"


def test_a_users_own_trigger_may_enter_the_ledger(conn: Connection, effects: str) -> None:
    lease = claim_new(conn)
    conn.execute(f"ALTER TABLE {effects} ADD token bigint, ADD lease_id uuid")
    conn.execute(
        "CREATE FUNCTION finish() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM faultline.commit(NEW.job_id, NEW.token, NEW.lease_id); RETURN NEW; END $$;"
        f"CREATE TRIGGER finish AFTER INSERT ON {effects} FOR EACH ROW EXECUTE FUNCTION finish()"
    )
    conn.execute(f"INSERT INTO {effects} VALUES (%s, 'trigger', %s, %s)", lease)
    assert entries(conn) == [lease]
    with refused("FL001", reason="already_committed"):
        enter(conn, lease)
