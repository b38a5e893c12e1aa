"""faultline.delete removes a queued or failed job, and refuses every other."""

from __future__ import annotations

from uuid import UUID, uuid4

from faultline.postgres.sessions import run
from faultline.statements.invariants import INVARIANTS, check

from .steps import (
    Connect,
    Connection,
    cancel,
    claim,
    claim_new,
    commit,
    committed,
    enqueue,
    entries,
    logged,
    refused,
    rows,
    start_and_wait_until_blocked,
    state,
    take_over,
    value,
)


def delete(conn: Connection, job_id: UUID) -> str:
    return str(value(conn, "SELECT faultline.delete(%s)", job_id))


def exists(conn: Connection, job_id: UUID) -> bool:
    return bool(value(conn, "SELECT EXISTS (SELECT FROM faultline.jobs WHERE id = %s)", job_id))


def test_a_failed_job_is_deleted_with_its_history(conn: Connection) -> None:
    lease = claim_new(conn)
    take_over(conn, lease)
    conn.execute(
        "SELECT faultline.record_rejection(%s, %s, 'first', 'token_mismatch')",
        [lease.job_id, lease.token],
    )
    cancel(conn, lease.job_id)
    assert logged(conn, lease.job_id) != []
    assert delete(conn, lease.job_id) == "failed"
    assert not exists(conn, lease.job_id)
    assert logged(conn, lease.job_id) == rows(conn, "SELECT FROM faultline.rejections") == []


def test_a_deleted_jobs_idempotency_key_can_be_used_again(conn: Connection) -> None:
    first, _ = enqueue(conn, payload={"n": 1}, idempotency_key="k")
    assert delete(conn, first) == "queued"
    second, existed = enqueue(conn, payload={"n": 2}, idempotency_key="k")
    assert (second == first, existed) == (False, False)


def test_a_running_job_is_not_deleted(conn: Connection) -> None:
    lease = claim_new(conn)
    with refused("FL002"):
        delete(conn, lease.job_id)
    commit(conn, lease)


def test_a_succeeded_job_and_its_entry_are_not_deleted(conn: Connection) -> None:
    lease = committed(conn)
    with refused("FL002"):
        delete(conn, lease.job_id)
    assert state(conn, lease.job_id) == "succeeded"
    assert entries(conn) == [lease]


def test_a_former_holder_of_a_deleted_job_cannot_commit(conn: Connection) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    delete(conn, lease.job_id)
    with refused("FL001", reason="unknown_job"):
        commit(conn, lease)
    assert [found for each in INVARIANTS for found in run(conn, check(each))] == []


def test_an_unknown_job_cannot_be_deleted(conn: Connection) -> None:
    with refused("FL006"):
        delete(conn, uuid4())


def test_a_delete_waits_for_a_claim_and_is_refused_if_the_job_runs(
    conn: Connection, connect: Connect
) -> None:
    job_id, _ = enqueue(conn)
    worker = connect()
    worker.execute("BEGIN")
    lease = claim(worker)
    late = start_and_wait_until_blocked(conn, connect(), lambda c: delete(c, job_id))
    worker.execute("COMMIT")
    with refused("FL002"):
        late.result()
    commit(conn, lease)


def test_a_claim_passes_a_job_that_is_being_deleted(conn: Connection, connect: Connect) -> None:
    job_id, _ = enqueue(conn)
    operator = connect()
    operator.execute("BEGIN")
    delete(operator, job_id)
    assert rows(conn, "SELECT FROM faultline.claim('w', '{default}', 1, '1 minute')") == []
    operator.execute("COMMIT")
    assert not exists(conn, job_id)


def test_a_delete_does_not_deadlock_with_a_claim_that_recalls_the_job(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn, task="new_task")
    conn.execute(
        "SELECT faultline.defer_many(ARRAY[%s], ARRAY[%s::bigint], ARRAY[%s], '1 hour')", lease
    )
    operator, worker = connect(), connect()
    worker.execute("BEGIN")  # it has taken the row of deferred_jobs, and next wants the job's
    worker.execute("SELECT FROM faultline.deferred_jobs FOR UPDATE")
    operator.execute("BEGIN")
    delete(operator, lease.job_id)
    recall = "SELECT faultline.recall_deferred('{default}', '{new_task}', 10)"
    late = start_and_wait_until_blocked(conn, worker, lambda c: rows(c, recall))
    operator.execute("COMMIT")
    late.result()
    worker.execute("COMMIT")
    assert rows(conn, "SELECT FROM faultline.deferred_jobs") == []


def test_a_delete_is_written_to_the_audit_log(conn: Connection) -> None:
    job_id, _ = enqueue(conn, task="send_mail")
    delete(conn, job_id)
    query = "SELECT action, object, result, code, detail FROM faultline.audit_log"
    assert rows(conn, query) == [("delete", f"job {job_id}", "done", "queued", "send_mail")]
