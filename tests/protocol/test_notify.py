"""Due jobs are notified, unless the producer switches notifications off."""

from __future__ import annotations

from datetime import UTC, datetime

from .steps import Connection, claim_new, enqueue, expire, reconcile, release


def listen(conn: Connection) -> list[str]:
    """The queues notified from now on; a session gets its own notifications at once."""
    payloads: list[str] = []
    conn.add_notify_handler(lambda notice: payloads.append(notice.payload))
    conn.execute("LISTEN faultline")
    return payloads


def test_due_work_is_announced_with_the_name_of_its_queue(conn: Connection) -> None:
    payloads = listen(conn)
    enqueue(conn, queue="mail")
    assert payloads == ["mail"]


def test_work_for_later_is_not_announced(conn: Connection) -> None:
    payloads = listen(conn)
    enqueue(conn, queue="mail", run_at=datetime(2999, 1, 1, tzinfo=UTC))
    assert payloads == []


def test_work_whose_time_has_come_already_is_announced(conn: Connection) -> None:
    payloads = listen(conn)
    enqueue(conn, queue="mail", run_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert payloads == ["mail"]


def test_nothing_is_announced_when_notifications_are_switched_off(conn: Connection) -> None:
    payloads = listen(conn)
    conn.execute("SET faultline.notify = 'off'")
    enqueue(conn, queue="mail")
    assert payloads == []


def test_a_released_job_is_announced(conn: Connection) -> None:
    lease = claim_new(conn)
    payloads = listen(conn)
    release(conn, lease)
    assert payloads == ["default"]


def test_a_job_that_is_to_run_again_at_once_is_announced(conn: Connection) -> None:
    lease = claim_new(conn)
    payloads = listen(conn)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'oops', '0 seconds')", lease)
    assert payloads == ["default"]


def test_a_job_that_is_to_run_again_later_is_not_announced(conn: Connection) -> None:
    lease = claim_new(conn)
    payloads = listen(conn)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'oops', '1 hour')", lease)
    assert payloads == []


def test_a_reconciled_job_is_announced(conn: Connection) -> None:
    expire(conn, claim_new(conn))
    payloads = listen(conn)
    reconcile(conn)
    assert payloads == ["default"]


def test_a_job_that_is_retried_is_announced(conn: Connection) -> None:
    lease = claim_new(conn)
    conn.execute("SELECT faultline.cancel(%s)", [lease.job_id])
    payloads = listen(conn)
    conn.execute("SELECT faultline.retry(%s)", [lease.job_id])
    assert payloads == ["default"]
