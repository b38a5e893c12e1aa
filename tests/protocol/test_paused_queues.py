"""No job is claimed from a paused queue; everything else continues."""

from __future__ import annotations

from .steps import Connection, claim_batch, commit, enqueue, refused, rows, set_job


def pause(conn: Connection, queue: str, reason: str | None = None) -> bool:
    [(ran,)] = rows(conn, "SELECT faultline.pause_queue(%s, %s)", queue, reason)
    return bool(ran)


def resume(conn: Connection, queue: str) -> bool:
    [(was_paused,)] = rows(conn, "SELECT faultline.resume_queue(%s)", queue)
    return bool(was_paused)


def test_nothing_is_claimed_from_a_paused_queue_and_all_of_it_once_it_is_resumed(
    conn: Connection,
) -> None:
    job, _ = enqueue(conn, queue="mail")
    other, _ = enqueue(conn, queue="billing")
    assert pause(conn, "mail", "the provider is down")
    both = ["mail", "billing"]
    assert [lease.job_id for lease in claim_batch(conn, queues=both)] == [other]

    later, _ = enqueue(conn, queue="mail")
    assert claim_batch(conn, queues=both) == []

    assert resume(conn, "mail")
    assert {lease.job_id for lease in claim_batch(conn, queues=both)} == {job, later}


def test_a_job_that_runs_when_its_queue_is_paused_is_committed(conn: Connection) -> None:
    enqueue(conn)
    [lease] = claim_batch(conn)
    pause(conn, "default")
    commit(conn, lease)
    assert rows(conn, "SELECT state FROM faultline.jobs") == [("succeeded",)]


def test_an_expired_job_in_a_paused_queue_is_reconciled_and_waits(conn: Connection) -> None:
    job, _ = enqueue(conn)
    claim_batch(conn)
    set_job(conn, job, "lease_expires_at = '2001-01-01'")
    pause(conn, "default")
    assert claim_batch(conn) == []
    assert rows(conn, "SELECT state FROM faultline.jobs") == [("queued",)]


def test_pausing_twice_keeps_the_first_reason_and_resuming_twice_does_nothing(
    conn: Connection,
) -> None:
    assert pause(conn, "mail", "first")
    assert not pause(conn, "mail", "second")
    assert rows(conn, "SELECT queue, reason FROM faultline.paused_queues") == [("mail", "first")]
    assert resume(conn, "mail")
    assert not resume(conn, "mail")


def test_a_name_that_no_queue_can_have_is_refused(conn: Connection) -> None:
    with refused("23514"):
        pause(conn, "no such queue!")
