"""Claims of jobs under limits against the repair of limits."""

from __future__ import annotations

from typing import Any

import psycopg

from faultline.postgres.sessions import run
from faultline.statements import limits, protocol
from faultline.statements.statement import Statement

from .stepper import Actor, Connect, claim_as

Conn = psycopg.Connection[Any]
REPAIR = "SELECT freed, resumed, forgotten FROM faultline.repair_limits()"
KEYS = "SELECT limit_key FROM faultline.limit_states"
WAITED = "SELECT pg_get_functiondef('faultline.lock_limit_keys'::regproc)"


def wait_for_keys(conn: Conn) -> None:
    """Let claims wait for a key's lock as long as the test needs, and not for 50 ms."""
    [(definition,)] = conn.execute(WAITED).fetchall()
    assert "'50ms'" in definition
    conn.execute(definition.replace("'50ms'", "'60s'").encode())


def enqueue(count: int = 1, **arguments: int) -> Statement[Any]:
    options: dict[str, Any] = {"queue": "default", "priority": 5, "max_attempts": 5}
    return protocol.enqueue_many("charge", [{"customer": 1, **arguments}] * count, **options)


def limit_customers(conn: Conn, running: int) -> None:
    bound = limits.set_limit(
        "key:customer", max_running=running, task="charge", argument="customer"
    )
    run(conn, bound)


def leave_an_idle_key(conn: Conn) -> None:
    """A key whose only job has ended: the repair deletes its row."""
    limit_customers(conn, 1)
    run(conn, enqueue())
    [claim] = run(conn, claim_as("w"))
    run(conn, protocol.commit(claim))
    assert conn.execute(KEYS).fetchall() == [("key:customer=1",)]


def test_a_claim_that_waits_for_the_deletion_of_its_key_locks_the_key_anew(
    conn: Conn, connect: Connect
) -> None:
    leave_an_idle_key(conn)
    wait_for_keys(conn)
    run(conn, enqueue(2))
    repair, first, second = Actor(connect), Actor(connect), Actor(connect)
    repair.begin()
    repair.run(REPAIR)
    first.begin()
    first.start(claim_as("first", 1))
    assert first.is_blocked()
    repair.commit()
    assert len(first.result()) == 1
    second.start(claim_as("second", 1))
    assert second.is_blocked()  # the first claim holds the only place of the key
    first.commit()
    assert second.result() == []


def test_a_claim_whose_second_key_is_deleted_while_it_waits_for_its_first_locks_both(
    conn: Conn, connect: Connect
) -> None:
    leave_an_idle_key(conn)
    account = limits.set_limit("key:account", max_running=9, task="charge", argument="account")
    run(conn, account)
    wait_for_keys(conn)
    run(conn, enqueue(account=1))
    run(conn, enqueue(account=2))
    conn.execute("INSERT INTO faultline.limit_states (limit_key) VALUES ('key:account=1')")
    repair, other, first, second = Actor(connect), Actor(connect), Actor(connect), Actor(connect)
    other.begin()
    other.run("SELECT FROM faultline.limit_states WHERE limit_key = 'key:account=1' FOR UPDATE")
    first.begin()
    first.start(claim_as("first", 1))
    assert first.is_blocked()  # keys are locked in their order: the customer's is not locked yet
    repair.run(REPAIR)
    other.commit()
    assert len(first.result()) == 1
    second.start(claim_as("second", 1))
    assert second.is_blocked()  # both jobs are of one customer
    first.commit()
    assert second.result() == []


HOLDABLE = """
    CREATE OR REPLACE FUNCTION faultline.parked_for() RETURNS interval LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('test.holds', true) = 'on' THEN
            PERFORM pg_advisory_xact_lock(1);
        END IF;
        RETURN interval '8766000 hours';
    END $$
"""


def test_the_repair_keeps_the_line_of_a_job_that_waits_again_since_it_looked(
    conn: Conn, connect: Connect
) -> None:
    """The repair is held after it has read the job as due, and before it locks a row."""
    run(conn, limits.set_limit("task:charge", max_running=0))
    [queued] = run(conn, enqueue())
    assert run(conn, claim_as("w")) == []
    operator, holder, repair = Actor(connect), Actor(connect), Actor(connect)
    operator.begin("REPEATABLE READ")
    operator.run(protocol.cancel(queued.job_id))
    operator.commit()
    operator.run(protocol.retry(queued.job_id))  # due, and its row of waiting_jobs is stale
    conn.execute(HOLDABLE)
    holder.run("SELECT pg_advisory_lock(1)")
    repair.run("SELECT set_config('test.holds', 'on', false)")
    repair.start(REPAIR)
    assert repair.is_blocked()
    assert run(conn, claim_as("w")) == []  # the job waits again
    holder.run("SELECT pg_advisory_unlock(1)")
    repair.result()
    run(conn, limits.set_limit("task:charge", max_running=1))
    assert [claim.job_id for claim in run(conn, claim_as("w"))] == [queued.job_id]
