"""`faultline why` has its own answer for each situation of a job."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from faultline.postgres.sessions import run
from faultline.statements import leadership, protocol, queues, snoozes, workers
from tests.protocol.steps import end_session

from .conftest import Connection, Explained, Faultline, claim, enqueue, expire, register


def test_an_unknown_job_is_an_error(faultline: Faultline) -> None:
    faultline("why", str(uuid4())).refused("unknown_job")


# ── over ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_succeeded_job_is_explained(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn)
    run(conn, protocol.commit(claim(conn)))
    asked = Explained(faultline, job_id)
    assert asked.code == "succeeded"
    assert asked.first_line.startswith("it succeeded ")


def test_a_failed_job_is_explained_with_the_command_to_retry_it(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = enqueue(conn, max_attempts=1)
    run(conn, protocol.fail(claim(conn), error="ValueError: no such customer"))
    asked = Explained(faultline, job_id)
    assert asked.code == "failed"
    assert asked.answer == (
        "it has failed: all 1 attempt failed; last error: ValueError: no such customer"
    )
    assert f"faultline jobs retry {job_id}" in asked.advice


def test_a_job_that_killed_its_workers_is_explained(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn, max_attempts=1)
    claim(conn)
    expire(conn, job_id)
    run(conn, protocol.reconcile(max_jobs=1))
    asked = Explained(faultline, job_id)
    assert asked.code == "failed"
    assert "its worker died or went silent" in asked.answer
    assert "what kills the worker" in asked.advice


def test_a_cancelled_job_is_explained(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn)
    run(conn, protocol.cancel(job_id, "a mistake"))
    assert Explained(faultline, job_id).answer.startswith("it has failed: it was cancelled")


# ── running ──────────────────────────────────────────────────────────────────────────────────────


def test_a_running_job_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "w")
    job_id = enqueue(conn)
    claim(conn, "w")
    asked = Explained(faultline, job_id)
    assert asked.code == "running"
    assert asked.first_line.startswith("it is running on worker w (token 1, lease valid for ")
    assert "last heartbeat" in asked.answer
    assert asked.facts["worker_status"] == "alive"


def test_a_handlers_own_lock_is_a_fact_and_not_the_answer(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = enqueue(conn)
    claimed = claim(conn)
    with conn.transaction():
        run(conn, protocol.assert_fence(claimed))
        conn.execute("SELECT pg_current_xact_id()")
        asked = Explained(faultline, job_id)
    assert asked.code == "running"
    assert f"session {conn.info.backend_pid}" in asked.facts["locked_by"][0]


def test_a_lost_worker_with_a_valid_lease_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "w")
    end_session(conn, worker_session)
    job_id = enqueue(conn)
    claim(conn, "w")
    asked = Explained(faultline, job_id)
    assert asked.code == "worker_lost"
    assert "worker w, which is gone" in asked.answer
    assert "when its lease has run out" in asked.advice
    run(conn, leadership.try_to_lead(silence_limit="0"))
    assert "requeues it at once" in Explained(faultline, job_id).advice


def test_an_expired_lease_without_live_workers_is_explained(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = enqueue(conn)
    claim(conn)
    expire(conn, job_id)
    asked = Explained(faultline, job_id)
    assert asked.code == "unattended"
    assert asked.first_line.startswith(
        "it is running, but its lease ran out 1 h 30 min ago, and no"
    )
    assert "--queues default" in asked.advice


@pytest.mark.parametrize("rescuer", ["reconciler", "worker", "worker behind a pooler"])
def test_an_expired_lease_about_to_be_reconciled_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection, rescuer: str
) -> None:
    if rescuer == "reconciler":
        run(worker_session, leadership.try_to_lead(silence_limit="0"))
    elif rescuer == "worker":
        register(worker_session, "w")
    else:
        register(worker_session, "w", "elsewhere", holds_locks=False)
    job_id = enqueue(conn)
    claim(conn)
    expire(conn, job_id)
    asked = Explained(faultline, job_id)
    assert asked.code == "lease_expired"
    assert "about to reconcile it" in asked.answer


def test_an_expired_lease_locked_by_a_prepared_transaction_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "w")
    job_id = enqueue(conn)
    claimed = claim(conn)
    conn.execute("BEGIN")
    run(conn, protocol.assert_fence(claimed))
    conn.execute(f"PREPARE TRANSACTION '{job_id}'")
    try:
        expire(conn, job_id)
        asked = Explained(faultline, job_id)
    finally:
        conn.execute(f"ROLLBACK PREPARED '{job_id}'")
    assert asked.code == "locked"
    assert f"its row is locked by the prepared transaction '{job_id}'" in asked.answer


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────


def test_a_scheduled_job_is_explained(faultline: Faultline, conn: Connection) -> None:
    job_id = UUID(faultline("enqueue", "send_mail", "--delay", "5430").out.strip())
    asked = Explained(faultline, job_id)
    assert asked.code == "scheduled"
    assert asked.first_line == "it is scheduled: due in 1 h 30 min"


def test_a_job_that_waits_for_a_retry_is_explained(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn)
    run(conn, protocol.fail(claim(conn), error="boom", retry_seconds=300))
    asked = Explained(faultline, job_id)
    assert asked.code == "scheduled"
    assert asked.answer.endswith("after attempt 1 of 5")
    assert asked.facts["last_error"] == "boom"


def snoozed(faultline: Faultline, conn: Connection, reason: str | None = None) -> Explained:
    held = claim(conn)
    run(conn, snoozes.snooze(held, seconds=5430, until=None, reason=reason))
    asked = Explained(faultline, held.job_id)
    conn.execute("UPDATE faultline.jobs SET next_run_at = clock_timestamp()")
    return asked


def test_a_snoozed_job_is_explained(faultline: Faultline, conn: Connection) -> None:
    enqueue(conn)
    asked = snoozed(faultline, conn, "the bank is closed")
    assert (asked.code, asked.facts["snoozes"]) == ("snoozed", 1)
    assert asked.answer == (
        "its handler snoozed it, once so far: due in 1 h 30 min: the bank is closed"
    )
    assert asked.advice.startswith("nothing to do")


def test_an_endless_snooze_is_explained(faultline: Faultline, conn: Connection) -> None:
    enqueue(conn)
    snoozed(faultline, conn)
    conn.execute("UPDATE faultline.attempts_log SET times = 1233")
    asked = snoozed(faultline, conn)
    assert "snoozed it, 1,234 times so far" in asked.answer
    assert "faultline jobs cancel" in asked.advice


def test_a_job_that_failed_after_a_snooze_is_no_snoozed_job(
    faultline: Faultline, conn: Connection
) -> None:
    enqueue(conn)
    snoozed(faultline, conn)
    held = claim(conn)
    run(conn, protocol.fail(held, error="boom", retry_seconds=300))
    assert Explained(faultline, held.job_id).code == "scheduled"


def test_a_paused_queue_is_explained(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn)
    run(conn, queues.pause("default", "the bank is closed"))
    asked = Explained(faultline, job_id)
    assert asked.code == "queue_paused"
    assert asked.answer.endswith(": the bank is closed")
    assert asked.advice == "faultline queues resume default"


def test_a_restored_database_is_explained(faultline: Faultline, conn: Connection) -> None:
    job_id = enqueue(conn)
    conn.execute("UPDATE faultline.epochs SET system_identifier = 42")
    asked = Explained(faultline, job_id)
    assert asked.code == "server_changed"
    assert asked.advice.endswith("faultline epoch bump")


def test_a_due_job_without_any_live_worker_is_explained(
    faultline: Faultline, conn: Connection
) -> None:
    asked = Explained(faultline, enqueue(conn))
    assert asked.code == "no_worker"
    assert "no worker is alive" in asked.answer


def test_a_due_job_whose_queue_has_no_worker_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "w", "mail", "reports")
    asked = Explained(faultline, enqueue(conn))
    assert asked.first_line == (
        "it is due, but no live worker claims from queue default"
        " (live workers claim from mail, reports)"
    )
    assert "faultline worker --app MODULE:NAME --queues default" in asked.advice


@pytest.mark.parametrize("status", ["draining", "silent", "lost"])
def test_a_queue_whose_only_worker_cannot_claim_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection, status: str
) -> None:
    register(worker_session, "w")
    if status == "draining":
        run(conn, workers.drain_worker("w"))
    elif status == "silent":
        conn.execute(
            "UPDATE faultline.workers SET last_heartbeat_at = now() - interval '10 minutes'"
        )
    else:
        end_session(conn, worker_session)
    asked = Explained(faultline, enqueue(conn))
    assert asked.code == "no_worker"
    assert f"worker w has this queue, but is {status}" in asked.advice


def test_a_job_behind_other_jobs_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "w", "default", "mail")
    enqueue(conn)
    claim(conn, "w")
    enqueue(conn)  # due earlier
    job_id = enqueue(conn)
    enqueue(conn)  # due later
    enqueue(conn, priority=9)
    enqueue(conn, priority=0)  # better
    enqueue(conn, priority=0, queue="mail")  # better, and for the same worker
    enqueue(conn, priority=0, queue="unrelated")
    asked = Explained(faultline, job_id)
    assert asked.code == "behind_others"
    assert asked.facts["jobs_ahead"] == 2
    assert asked.facts["jobs_ahead_elsewhere"] == 1
    assert asked.first_line == (
        "it is due, but 3 due jobs are ahead of it (higher priority, or due earlier);"
        " 1 live worker, busy with 1 job"
    )


def test_the_next_job_in_line_is_explained(
    faultline: Faultline, conn: Connection, worker_session: Connection
) -> None:
    register(worker_session, "w")
    asked = Explained(faultline, enqueue(conn))
    assert asked.code == "next_in_line"
    assert asked.answer.endswith("1 live worker of queue default, idle")
