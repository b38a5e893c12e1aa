"""Many producers of one unique key at once, on real sessions."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

import psycopg
import pytest

from faultline import (
    Enqueued,
    EnqueueOutcome,
    IllegalTransition,
    StaleLease,
    Unique,
    UniqueKeyHeld,
    UnknownJob,
)
from faultline.model import JobSpec
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.invariants import INVARIANTS, check
from faultline.statements.statement import Statement
from tests.running import Connection, count
from tests.waiting import LIMIT_SECONDS

PRODUCERS = 50
SESSIONS = 20
T = TypeVar("T")
Connect = Callable[[], psycopg.Connection[Any]]


def spec(unique: Unique, key: int, by: int, **times: Any) -> JobSpec:
    payload = {"key": key, "by": by}
    delay = times.get("delay")
    return JobSpec("task", "default", 5, 5, None, delay, None, None, None, unique, None, payload)


def at_once(connect: Connect, acts: Sequence[Callable[[Connection], T]]) -> list[T]:
    """Run each act in a session of its own, all started together."""
    barrier = threading.Barrier(len(acts), timeout=LIMIT_SECONDS)

    def call(act: Callable[[Connection], T], conn: Connection) -> T:
        barrier.wait()
        return act(conn)

    with ExitStack() as stack:
        sessions = [stack.enter_context(connect()) for _ in acts]
        threads = stack.enter_context(ThreadPoolExecutor(len(acts)))
        calls = [threads.submit(call, *pair) for pair in zip(acts, sessions, strict=True)]
        return [each.result(timeout=LIMIT_SECONDS) for each in calls]


def violations(conn: Connection) -> list[Any]:
    return [found for invariant in INVARIANTS for found in run(conn, check(invariant))]


def enqueue(unique: Unique, by: int, **times: Any) -> Callable[[Connection], Enqueued]:
    def act(conn: Connection) -> Enqueued:
        with conn.transaction():
            return run(conn, protocol.enqueue_job(spec(unique, 1, by, **times)))

    return act


@pytest.mark.parametrize("while_", ["queued", "unfinished"])
@pytest.mark.parametrize("on_conflict", ["keep", "replace", "reschedule"])
def test_fifty_producers_make_one_job(
    conn: Connection, connect: Connect, while_: Any, on_conflict: Any
) -> None:
    unique = Unique(by=("key",), while_=while_, on_conflict=on_conflict)
    acts = [enqueue(unique, by, delay=3600.0 + by) for by in range(PRODUCERS)]
    answers = at_once(connect, acts)
    changed = {"keep": "kept", "replace": "replaced", "reschedule": "rescheduled"}[on_conflict]
    outcomes = Counter(answer.outcome.value for answer in answers)
    assert outcomes == {"queued": 1, changed: PRODUCERS - 1}
    assert len({answer.job_id for answer in answers}) == count(conn, "faultline.jobs") == 1
    assert violations(conn) == []


def test_fifty_producers_and_five_claiming_workers_never_have_two_unfinished_jobs(
    conn: Connection, connect: Connect
) -> None:
    unique = Unique(by=("key",), on_conflict="replace")

    def produce(by: int) -> Callable[[Connection], None]:
        def act(session: Connection) -> None:
            for _ in range(4):
                enqueue(unique, by)(session)
                assert violations(session) == []

        return act

    def work(session: Connection) -> None:
        for _ in range(30):
            claims = run(
                session, protocol.claim("w", ["default"], batch_size=10, lease_seconds=600)
            )
            assert len(claims) <= 1
            for claim in claims:
                run(session, protocol.commit(claim))

    at_once(connect, [*map(produce, range(PRODUCERS)), *[work] * 5])
    assert violations(conn) == []


def test_bulk_enqueues_in_opposite_orders_do_not_deadlock(
    conn: Connection, connect: Connect
) -> None:
    unique = Unique(by=("key",), on_conflict="replace")

    def act(number: int) -> Callable[[Connection], None]:
        order = list(range(40))
        random.Random(number).shuffle(order)
        if number < 2:
            order.sort(reverse=number == 1)

        def run_all(session: Connection) -> None:
            for _ in range(5):
                run(session, protocol.enqueue_jobs([spec(unique, key, number) for key in order]))

        return run_all

    at_once(connect, [act(number) for number in range(SESSIONS)])
    assert count(conn, "faultline.jobs") == 40
    assert violations(conn) == []


def test_retries_claims_and_enqueues_in_opposite_orders_do_not_deadlock(
    conn: Connection, connect: Connect
) -> None:
    unique = Unique(by=("key",), on_conflict="replace")

    def produce(session: Connection) -> None:
        for _ in range(10):
            order = list(range(20))
            random.shuffle(order)
            run(session, protocol.enqueue_jobs([spec(unique, key, 0) for key in order]))

    def operate(session: Connection) -> None:
        every = "ARRAY(SELECT id FROM faultline.jobs ORDER BY random())"
        one = "(SELECT id FROM faultline.jobs ORDER BY random() LIMIT 1)"
        for verb in ("cancel_many", "retry_many") * 5:
            session.execute(f"SELECT faultline.{verb}({every})".encode())
            refusals = (UniqueKeyHeld, IllegalTransition, UnknownJob)
            with contextlib.suppress(*refusals):
                run(session, Statement(f"SELECT faultline.retry(id) FROM {one} AS j", (), list))
            session.execute(f"SELECT faultline.delete_many({every})".encode())

    def work(session: Connection) -> None:
        for _ in range(20):
            for claim in run(
                session, protocol.claim("w", ["default"], batch_size=3, lease_seconds=600)
            ):
                with contextlib.suppress(StaleLease):  # it was cancelled meanwhile
                    run(session, protocol.release(claim))

    at_once(connect, [*[produce] * 8, *[operate] * 4, *[work] * 4])
    assert violations(conn) == []


NAIVE = """
    CREATE FUNCTION naive_enqueue(wanted text) RETURNS uuid LANGUAGE plpgsql AS $$
    DECLARE
        found uuid := (SELECT j.id FROM faultline.jobs AS j
                       WHERE j.payload ->> 'key' = wanted AND j.state IN ('queued', 'running') LIMIT 1);
    BEGIN
        RETURN coalesce(found, (SELECT e.job_id FROM faultline.enqueue(
                                    'task', jsonb_build_object('key', wanted)) AS e));
    END $$;
"""


def test_the_control_that_looks_and_then_inserts_makes_several_jobs(
    conn: Connection, connect: Connect
) -> None:
    conn.execute(NAIVE)

    def act(session: Connection) -> None:
        with session.transaction():
            session.execute("SELECT naive_enqueue('1')")

    for _ in range(20):
        at_once(connect, [act] * PRODUCERS)
        if count(conn, "faultline.jobs") > 1:
            return
        conn.execute("DELETE FROM faultline.jobs")
    pytest.fail("the control never made two jobs: this test shows nothing")


def test_the_invariants_find_two_jobs_of_one_key(conn: Connection) -> None:
    unique = Unique(by=("key",))
    first = run(conn, protocol.enqueue_job(spec(unique, 1, 1)))
    assert first.outcome is EnqueueOutcome.QUEUED
    assert violations(conn) == []
    conn.execute("DELETE FROM faultline.unique_keys")
    assert [found.job_id for found in violations(conn)] == [str(first.job_id)]
    run(conn, protocol.enqueue_job(spec(unique, 1, 2)))
    assert len(violations(conn)) == 2
    conn.execute("DELETE FROM faultline.jobs")
    assert len(violations(conn)) == 2
