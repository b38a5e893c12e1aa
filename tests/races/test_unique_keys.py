"""A unique enqueue against claims, handlers, operators and other enqueues."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline import Enqueued, EnqueueOutcome, Unique
from faultline.errors import UniqueKeyHeld
from faultline.model import JobSpec
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement

from .stepper import Actor, Connect, claim_as

Conn = psycopg.Connection[Any]
QUEUED, KEPT, REPLACED = EnqueueOutcome.QUEUED, EnqueueOutcome.KEPT, EnqueueOutcome.REPLACED


def enqueue(
    on_conflict: Any = "keep", while_: Any = "queued", by: str = "a"
) -> Statement[Enqueued]:
    unique = Unique(by=("key",), while_=while_, on_conflict=on_conflict)
    payload = {"key": 1, "by": by}
    options = (None, None, None, None, None)
    return protocol.enqueue_job(JobSpec("task", "default", 5, 5, *options, unique, None, payload))


def stored(conn: Conn) -> list[Any]:
    return [by for (by,) in conn.execute("SELECT payload ->> 'by' FROM faultline.jobs ORDER BY id")]


def test_the_second_producer_waits_for_the_first_and_meets_its_job(
    conn: Conn, connect: Connect
) -> None:
    first, second = Actor(connect), Actor(connect)
    first.begin()
    made = first.run(enqueue())
    second.start(enqueue())
    assert second.is_blocked()
    first.commit()
    answer = second.result()
    assert (answer.outcome, answer.job_id) == (KEPT, made.job_id)


def test_the_second_producer_makes_the_job_when_the_first_rolls_back(
    conn: Conn, connect: Connect
) -> None:
    first, second = Actor(connect), Actor(connect)
    first.begin()
    first.run(enqueue(by="a"))
    second.start(enqueue(by="b"))
    assert second.is_blocked()
    first.rollback()
    assert second.result().outcome is QUEUED
    assert stored(conn) == ["b"]


@pytest.mark.parametrize("on_conflict", ["keep", "replace", "reschedule"])
def test_a_job_is_not_claimed_before_the_enqueue_that_met_it_commits(
    conn: Conn, connect: Connect, on_conflict: Any
) -> None:
    run(conn, enqueue())
    producer, worker = Actor(connect), Actor(connect)
    producer.begin()
    producer.run(enqueue(on_conflict, by="b"))
    assert worker.run(claim_as("w")) == []  # it skips the job, and does not wait
    producer.commit()
    [claim] = worker.run(claim_as("w"))
    assert f'"by": "{"b" if on_conflict == "replace" else "a"}"' in claim.payload_json


@pytest.mark.parametrize(("while_", "outcome"), [("queued", QUEUED), ("unfinished", KEPT)])
def test_a_replace_that_meets_a_claim_in_flight_is_judged_after_it(
    conn: Conn, connect: Connect, while_: Any, outcome: EnqueueOutcome
) -> None:
    run(conn, enqueue(while_=while_))
    worker, producer = Actor(connect), Actor(connect)
    worker.begin()
    [claim] = worker.run(claim_as("w"))
    producer.begin()
    producer.start(enqueue("replace", while_, by="b"))
    assert producer.is_blocked()
    worker.commit()
    assert producer.result().outcome is outcome
    # The producer's transaction is still open, and holds nothing that the running job needs.
    worker.run(protocol.commit(claim))
    producer.commit()
    assert stored(conn)[0] == "a"


@pytest.mark.parametrize("while_", ["queued", "unfinished"])
@pytest.mark.parametrize("on_conflict", ["keep", "replace", "reschedule"])
def test_no_enqueue_waits_for_a_handlers_transaction(
    conn: Conn, connect: Connect, while_: Any, on_conflict: Any
) -> None:
    run(conn, enqueue(while_=while_))
    worker, producer = Actor(connect), Actor(connect)
    [claim] = worker.run(claim_as("w"))
    worker.begin()
    worker.run(protocol.commit(claim))  # it holds the job's row until its COMMIT
    outcome = producer.run(enqueue(on_conflict, while_)).outcome
    assert outcome is (QUEUED if while_ == "queued" else KEPT)
    worker.commit()


def test_a_cancelled_holder_is_taken_over_after_the_cancel(conn: Conn, connect: Connect) -> None:
    made = run(conn, enqueue("replace", "unfinished"))
    operator, producer = Actor(connect), Actor(connect)
    operator.begin()
    operator.run(protocol.cancel(made.job_id))
    producer.start(enqueue("replace", "unfinished", by="b"))
    assert producer.is_blocked()
    operator.commit()
    assert producer.result().outcome is QUEUED
    assert stored(conn) == ["a", "b"]


def test_a_retry_waits_for_a_producer_of_its_key_and_is_refused(
    conn: Conn, connect: Connect
) -> None:
    made = run(conn, enqueue("keep", "unfinished"))
    run(conn, protocol.cancel(made.job_id))
    operator, producer = Actor(connect), Actor(connect)
    producer.begin()
    assert producer.run(enqueue("keep", "unfinished")).outcome is QUEUED
    operator.start(protocol.retry(made.job_id))
    assert operator.is_blocked()
    producer.commit()
    with pytest.raises(UniqueKeyHeld):
        operator.result()


def test_a_producer_waits_for_a_retry_and_keeps_its_job(conn: Conn, connect: Connect) -> None:
    made = run(conn, enqueue("keep", "unfinished"))
    run(conn, protocol.cancel(made.job_id))
    operator, producer = Actor(connect), Actor(connect)
    operator.begin()
    operator.run(protocol.retry(made.job_id))
    producer.start(enqueue("keep", "unfinished"))
    assert producer.is_blocked()
    operator.commit()
    assert producer.result().job_id == made.job_id


def test_retries_of_many_jobs_do_not_wait_for_a_producer(conn: Conn, connect: Connect) -> None:
    made = run(conn, enqueue("keep", "unfinished"))
    run(conn, protocol.cancel(made.job_id))
    operator, producer = Actor(connect), Actor(connect)
    producer.begin()
    producer.run(enqueue("keep", "unfinished"))
    retry = "SELECT outcome FROM faultline.retry_many(ARRAY[%s::uuid])"
    assert operator.run(retry, (made.job_id,)) == [("locked",)]
    producer.commit()
    assert operator.run(retry, (made.job_id,)) == [("refused",)]


def test_a_purge_skips_a_key_that_a_producer_holds(conn: Conn, connect: Connect) -> None:
    made = run(conn, enqueue("keep", "unfinished"))
    run(conn, protocol.cancel(made.job_id))
    operator, producer = Actor(connect), Actor(connect)
    producer.begin()
    producer.run(enqueue("keep", "unfinished"))
    purge = "SELECT keys FROM faultline.purge_unique_keys()"
    assert operator.run(purge) == [(0,)]
    producer.commit()
    assert operator.run(purge) == [(0,)]
    conn.execute("DELETE FROM faultline.jobs")
    assert operator.run(purge) == [(1,)]


def test_above_read_committed_a_key_used_meanwhile_is_a_serialization_failure(
    conn: Conn, connect: Connect
) -> None:
    producer = Actor(connect)
    producer.begin("REPEATABLE READ")
    producer.run("SELECT 1 FROM faultline.jobs")
    run(conn, enqueue())
    producer.start(enqueue())
    with pytest.raises(psycopg.errors.SerializationFailure):
        producer.result()


def test_above_read_committed_a_retry_meanwhile_is_a_serialization_failure(
    conn: Conn, connect: Connect
) -> None:
    made = run(conn, enqueue("keep", "unfinished"))
    run(conn, protocol.cancel(made.job_id))
    producer = Actor(connect)
    producer.begin("REPEATABLE READ")
    producer.run("SELECT 1 FROM faultline.jobs")
    run(conn, protocol.retry(made.job_id))
    producer.start(enqueue("keep", "unfinished"))
    with pytest.raises(psycopg.errors.SerializationFailure):
        producer.result()


def test_an_idempotency_key_used_meanwhile_leaves_no_unique_key(
    conn: Conn, connect: Connect
) -> None:
    def keyed(by: str) -> Statement[Enqueued]:
        spec = JobSpec(
            *("task", "default", 5, 5, None, None, None, None, None),
            *(Unique(by=(by,)), None, {"key": 1, "by": "a"}, "order-1"),
        )
        return protocol.enqueue_job(spec)

    first, second = Actor(connect), Actor(connect)
    first.begin()
    made = first.run(keyed("key"))
    second.start(keyed("by"))  # another unique key: only the idempotency key makes it wait
    assert second.is_blocked()
    first.commit()
    answer = second.result()
    assert (answer.outcome, answer.job_id) == (EnqueueOutcome.EXISTING, made.job_id)
    held = conn.execute("SELECT unique_key, job_id FROM faultline.unique_keys").fetchall()
    assert held == [('task {"key": 1}', made.job_id)]
