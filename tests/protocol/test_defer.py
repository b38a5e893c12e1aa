"""faultline.defer_many releases jobs whose task the worker does not know."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from .steps import (
    Connection,
    Lease,
    claim_batch,
    commit,
    enqueue,
    enqueue_many,
    expire,
    job,
    logged,
    one,
    refused,
    value,
)

CLAIM = "SELECT job_id FROM faultline.claim('knows', %s, %s, '1 hour', tasks => %s)"
READ = """
    SELECT sum(pg_stat_get_xact_tuples_returned(c.oid)) FROM pg_class AS c
    WHERE c.relname ~ '^(jobs|deferred_jobs)_'
"""


def defer(conn: Connection, *leases: Lease, retry_in: str = "1 minute") -> set[Any]:
    call = "SELECT job_id FROM faultline.defer_many(%s, %s, %s, %s, 'unknown here')"
    columns = [list(column) for column in zip(*leases, strict=True)]
    return {row[0] for row in conn.execute(call, [*columns, retry_in]).fetchall()}


def claim_knowing(
    conn: Connection, *tasks: str, queues: tuple[str, ...] = ("default",), batch_size: int = 10
) -> set[Any]:
    rows = conn.execute(CLAIM, [list(queues), batch_size, list(tasks)]).fetchall()
    return {row[0] for row in rows}


def test_a_deferral_does_not_count_as_an_attempt_and_makes_the_job_due_later(
    conn: Connection,
) -> None:
    job_id, _ = enqueue(conn, "theirs", max_attempts=1)
    (lease,) = claim_batch(conn, worker="first")
    assert defer(conn, lease) == {job_id}
    stored = job(conn, job_id)
    assert (stored["state"], stored["attempts"], stored["lease_owner"]) == ("queued", 0, None)
    assert value(
        conn, "SELECT next_run_at > clock_timestamp() + interval '50 s' FROM faultline.jobs"
    )
    assert logged(conn, job_id) == [(1, 1, "first", "released", "unknown here")]
    assert claim_batch(conn) == []


def test_a_deferral_by_more_than_a_century_is_refused(conn: Connection) -> None:
    enqueue(conn, "theirs")
    (lease,) = claim_batch(conn)
    with refused("FL005"):
        defer(conn, lease, retry_in="200 years")


def test_a_claim_that_names_its_task_gets_a_deferred_job_at_once(conn: Connection) -> None:
    job_id, _ = enqueue(conn, "theirs")
    due_at = job(conn, job_id)["next_run_at"]
    defer(conn, *claim_batch(conn))
    assert claim_knowing(conn, "mine", "ours") == set()
    assert claim_knowing(conn, "theirs", queues=("other",)) == set()
    assert claim_knowing(conn, "mine", "theirs") == {job_id}
    assert job(conn, job_id)["next_run_at"] == due_at
    assert one(conn, "SELECT count(*) FROM faultline.deferred_jobs") == (0,)


def test_a_deferred_job_that_is_due_again_is_claimed_by_any_worker(conn: Connection) -> None:
    job_id, _ = enqueue(conn, "theirs")
    defer(conn, *claim_batch(conn), retry_in="0")
    assert [lease.job_id for lease in claim_batch(conn)] == [job_id]


def test_only_the_holder_of_a_job_can_defer_it(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 5)
    mine, late, forged, older, done = claim_batch(conn, 5)
    expire(conn, late)  # no other worker has taken it over yet
    commit(conn, done)
    given = (
        mine,
        late,
        forged._replace(lease_id=uuid4()),
        older._replace(token=older.token - 1),
        done,
    )
    assert defer(conn, *given) == {mine.job_id, late.job_id}
    states = [job(conn, lease.job_id)["state"] for lease in (mine, late, forged, older, done)]
    assert states == ["queued", "queued", "running", "running", "succeeded"]


def test_deferred_jobs_cost_the_claims_of_others_nothing(conn: Connection) -> None:
    conn.execute("ALTER TABLE faultline.jobs SET (autovacuum_enabled = off)")
    enqueue_many(conn, [{}] * 3000)
    for _ in range(3):
        defer(conn, *claim_batch(conn, 1000))
    mine, _ = enqueue(conn, "mine")
    conn.execute("VACUUM faultline.jobs, faultline.deferred_jobs")
    with conn.transaction(force_rollback=True):
        before = value(conn, READ)
        assert claim_knowing(conn, "mine", "another") == {mine}
        assert value(conn, READ) - before < 100


def test_a_claim_recalls_no_more_deferred_jobs_than_it_wants(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 20)
    defer(conn, *claim_batch(conn, 20))
    assert len(claim_knowing(conn, "send_mail", batch_size=3)) == 3
    assert one(conn, "SELECT count(*) FROM faultline.deferred_jobs") == (17,)
