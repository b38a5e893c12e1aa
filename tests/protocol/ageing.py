"""Makes jobs that ended long ago: with ids of that day, and times moved back."""

from __future__ import annotations

from uuid import UUID

from .steps import Connection, Lease, cancel, claim, commit, set_job, value

MADE_AGO = """
    INSERT INTO faultline.jobs (id, task, queue, idempotency_key) SELECT overlay(
        faultline.first_id_at(clock_timestamp() - %s::interval)::text
        PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid, 'send_mail', %s, %s
    RETURNING id
"""


def made(conn: Connection, age: str, *, queue: str = "default", key: str | None = None) -> UUID:
    job_id: UUID = value(conn, MADE_AGO, age, queue, key)
    return job_id


def succeeded(conn: Connection, age: str, *, key: str | None = None) -> Lease:
    """Make such a job; no other may be due. Its ledger entry is as old as the job."""
    job_id = made(conn, age, key=key)
    lease = claim(conn)
    assert lease.job_id == job_id
    commit(conn, lease)
    set_job(conn, job_id, f"finished_at = clock_timestamp() - interval '{age}'")
    with conn.transaction():
        conn.execute("SET LOCAL session_replication_role = replica")  # the guards refuse this
        conn.execute(
            "UPDATE faultline.ledger SET committed_at = clock_timestamp() - %s::interval"
            " WHERE job_id = %s",
            [age, job_id],
        )
    return lease


def failed(conn: Connection, age: str, *, queue: str = "default") -> UUID:
    job_id = made(conn, age, queue=queue)
    cancel(conn, job_id)
    set_job(conn, job_id, f"finished_at = clock_timestamp() - interval '{age}'")
    return job_id
