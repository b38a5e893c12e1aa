"""A job that becomes due wakes one idle worker of its queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from .steps import Connection, channel_of, claim_new, enqueue, expire, reconcile, release, value

Connect = Callable[[], Connection]


def listen(conn: Connection, *queues: str, worker: str = "w") -> list[str]:
    """The queues of which this worker is told from now on."""
    payloads: list[str] = []
    conn.add_notify_handler(lambda notice: payloads.append(notice.payload))
    conn.execute(f'LISTEN "{channel_of(worker)}"')
    announce(conn, worker, *(queues or ("default", "mail")))
    return payloads


def announce(conn: Connection, worker: str, *queues: str) -> None:
    conn.execute("SELECT faultline.announce_idle(%s, %s)", [worker, list(queues)])


def withdraw(conn: Connection, worker: str, *notified: str) -> None:
    conn.execute("SELECT faultline.withdraw_idle(%s, %s)", [worker, list(notified)])


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


# ── which worker ─────────────────────────────────────────────────────────────────────────────────


def test_one_job_wakes_one_worker_and_the_jobs_go_round(conn: Connection) -> None:
    heard: Counter[str] = Counter()
    conn.add_notify_handler(lambda notice: heard.update([notice.channel]))
    for number in range(3):
        conn.execute(f'LISTEN "{channel_of(f"w{number}")}"')
        announce(conn, f"w{number}", "default")
    for count in range(1, 61):
        enqueue(conn)
        assert heard.total() == count
    assert len(heard) == 3


def test_many_jobs_wake_as_many_workers_as_there_are(conn: Connection) -> None:
    heard: Counter[str] = Counter()
    conn.add_notify_handler(lambda notice: heard.update([notice.channel]))
    for number in range(5):
        conn.execute(f'LISTEN "{channel_of(f"w{number}")}"')
        announce(conn, f"w{number}", "default")
    many = "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[%s]))"
    conn.execute(many, [3])
    assert sorted(heard.values()) == [1, 1, 1]
    conn.execute(many, [100])
    assert heard.total() == 8


def test_no_notification_is_sent_while_no_worker_is_idle(conn: Connection) -> None:
    """PostgreSQL would commit the producers' transactions one after the other."""
    payloads = listen(conn, "other")
    conn.execute("LISTEN faultline")
    enqueue(conn)
    withdraw(conn, "w")
    enqueue(conn, queue="other")
    assert payloads == []


def test_a_worker_that_becomes_idle_during_the_producers_transaction_is_woken(
    conn: Connection, connect: Connect
) -> None:
    producer = connect()
    payloads = listen(conn, "other")
    with producer.transaction():
        enqueue(producer)
        announce(conn, "w", "default")
    conn.execute("SELECT 1")  # notifications arrive with an answer
    assert payloads == ["default"]
    assert value(conn, "SELECT count(*) FROM faultline.pending_wakes") == 0


def test_a_producer_that_rolls_back_wakes_no_worker(conn: Connection, connect: Connect) -> None:
    producer, payloads = connect(), listen(conn)
    with producer.transaction(force_rollback=True):
        enqueue(producer)
    conn.execute("SELECT 1")
    assert payloads == []


def test_a_worker_without_free_slots_has_another_one_woken(conn: Connection) -> None:
    heard: Counter[str] = Counter()
    conn.add_notify_handler(lambda notice: heard.update([notice.channel]))
    conn.execute(f'LISTEN "{channel_of("other")}"')
    announce(conn, "w", "default")
    enqueue(conn)
    announce(conn, "other", "default")
    withdraw(conn, "w", "default")
    assert heard == {channel_of("other"): 1}


def test_a_worker_of_every_queue_is_woken_for_a_queue_that_no_worker_names(
    conn: Connection,
) -> None:
    heard: Counter[str] = Counter()
    conn.add_notify_handler(lambda notice: heard.update([notice.channel]))
    for worker, queue in (("every", "*"), ("own", "mail")):
        conn.execute(f'LISTEN "{channel_of(worker)}"')
        announce(conn, worker, queue)
    enqueue(conn, queue="mail")
    enqueue(conn, queue="new")
    assert heard == {channel_of("own"): 1, channel_of("every"): 1}


def test_an_announcement_replaces_the_one_before(conn: Connection) -> None:
    announce(conn, "w", "one", "two")
    announce(conn, "w", "two", "three")
    announce(conn, "w", "two", "three")
    queues = "SELECT array_agg(queue::text ORDER BY queue) FROM faultline.idle_workers"
    assert value(conn, queues) == ["three", "two"]


@pytest.mark.parametrize("end", ["deregister_worker(%s)", "drain_worker(%s)"])
def test_a_worker_that_leaves_is_withdrawn(conn: Connection, end: str) -> None:
    conn.execute("SELECT faultline.register_worker('w', 'h', 1, '{default}', false)")
    announce(conn, "w", "default")
    conn.execute(f"SELECT faultline.{end}", ["w"])
    assert value(conn, "SELECT count(*) FROM faultline.idle_workers") == 0


def test_workers_that_died_are_withdrawn_and_others_are_not(conn: Connection) -> None:
    for worker in ("dead", "silent", "alive"):
        conn.execute("SELECT faultline.register_worker(%s, 'h', 1, '{default}', false)", [worker])
    for worker in ("dead", "silent", "alive", "unknown"):
        announce(conn, worker, "default")
    conn.execute(
        "UPDATE faultline.workers SET last_heartbeat_at = clock_timestamp() - interval '2 minutes'"
        " WHERE id = 'silent'"
    )
    conn.execute("SELECT faultline.bury_workers('{dead}')")
    left = "SELECT array_agg(worker) FROM faultline.idle_workers"
    assert value(conn, left) == ["alive"]
