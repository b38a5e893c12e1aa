"""Two producers with one idempotency key make one job, and both get its id."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.errors import SerializationFailure

from faultline.errors import IdempotencyConflict
from faultline.model import Enqueued
from faultline.statements import protocol
from faultline.statements.statement import Statement

from .stepper import Actor, Connect, assert_settled

Conn = psycopg.Connection[Any]


def enqueue(key: str = "order-1", **payload: Any) -> Statement[Enqueued]:
    return protocol.enqueue(
        "task", payload, queue="default", priority=5, max_attempts=5, idempotency_key=key
    )


def enqueue_all(*keys: str) -> Statement[list[Enqueued]]:
    return protocol.enqueue_many(
        "task",
        [{}] * len(keys),
        queue="default",
        priority=5,
        max_attempts=5,
        idempotency_keys=keys,
    )


def count_jobs(conn: Conn) -> int:
    row = conn.execute("SELECT count(*) FROM faultline.jobs").fetchone()
    assert row is not None
    return int(row[0])


def test_the_second_producer_waits_and_gets_the_job_of_the_first(
    conn: Conn, connect: Connect
) -> None:
    first, second = Actor(connect), Actor(connect)
    first.begin()
    made = first.run(enqueue())

    second.start(enqueue())
    assert second.is_blocked()
    first.commit()

    assert second.result() == Enqueued(made.job_id, existing=True)
    assert (made.existing, count_jobs(conn)) == (False, 1)
    assert_settled(conn)


def test_the_second_producer_inserts_when_the_first_rolls_back(
    conn: Conn, connect: Connect
) -> None:
    first, second = Actor(connect), Actor(connect)
    first.begin()
    made = first.run(enqueue())
    second.start(enqueue())
    assert second.is_blocked()

    first.rollback()

    job = second.result()
    assert (job.existing, job.job_id != made.job_id, count_jobs(conn)) == (False, True, 1)
    assert_settled(conn)


def test_the_second_producer_is_refused_when_the_first_sent_another_payload(
    conn: Conn, connect: Connect
) -> None:
    first, second = Actor(connect), Actor(connect)
    first.begin()
    made = first.run(enqueue(amount=1))
    second.start(enqueue(amount=2))
    assert second.is_blocked()

    first.commit()

    with pytest.raises(IdempotencyConflict) as refusal:
        second.result()
    assert refusal.value.job_id == str(made.job_id)
    assert_settled(conn)


def test_other_keys_do_not_wait(conn: Conn, connect: Connect) -> None:
    first, second = Actor(connect), Actor(connect)
    first.begin()
    first.run(enqueue("order-1"))

    assert not second.run(enqueue("order-2")).existing

    first.commit()
    assert_settled(conn)


def test_batches_with_the_same_keys_in_opposite_orders_do_not_deadlock(
    conn: Conn, connect: Connect
) -> None:
    """A third producer holds `b`: without sorting the keys, both would deadlock."""
    holder, rising, falling = Actor(connect), Actor(connect), Actor(connect)
    holder.begin()
    holder.run(enqueue("b"))
    rising.start(enqueue_all("a", "b", "c"))
    assert rising.is_blocked()
    falling.start(enqueue_all("c", "b", "a"))
    assert falling.is_blocked()

    holder.rollback()

    answers = rising.result() + falling.result()
    assert sorted(answer.existing for answer in answers) == [False] * 3 + [True] * 3
    assert count_jobs(conn) == 3
    assert_settled(conn)


def test_a_repeatable_read_producer_never_answers_from_an_old_snapshot(
    conn: Conn, connect: Connect
) -> None:
    first, second = Actor(connect), Actor(connect)
    second.begin("REPEATABLE READ")
    second.run("SELECT count(*) FROM faultline.jobs")
    made = first.run(enqueue())

    with pytest.raises(SerializationFailure):
        second.run(enqueue())

    second.rollback()
    assert second.run(enqueue()) == Enqueued(made.job_id, existing=True)
    assert_settled(conn)
