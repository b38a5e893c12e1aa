"""A limit of concurrency: how many jobs run, which wait, what frees a place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg.types.json import Jsonb

from tests.protocol import steps
from tests.protocol.steps import Connect, Connection, Lease, columns, refused, value

from .steps import (
    assert_consistent,
    claim_all,
    due,
    enqueue,
    limit_customers,
    parked,
    places,
    repair,
    set_limit,
    waiting,
)


def test_a_claim_starts_as_many_jobs_of_a_task_as_its_limit_allows(conn: Connection) -> None:
    set_limit(conn, "task:charge", 3)
    enqueue(conn, [{}] * 10)
    enqueue(conn, [{}] * 4, task="mail")
    assert len(claim_all(conn)) == 7
    assert places(conn) == {"task:charge": 3}
    assert waiting(conn) == {"task:charge": 7}
    assert parked(conn) == 7
    assert claim_all(conn) == []
    assert_consistent(conn)


def test_a_limit_of_a_queue_counts_all_its_tasks(conn: Connection) -> None:
    set_limit(conn, "queue:billing", 2)
    enqueue(conn, [{}] * 3, queue="billing")
    enqueue(conn, [{}] * 3, task="mail", queue="billing")
    enqueue(conn, [{}] * 3)
    assert len(claim_all(conn, queues=("billing", "default"))) == 5
    assert places(conn) == {"queue:billing": 2}


def test_a_keyed_limit_counts_each_value_of_the_argument_apart(conn: Connection) -> None:
    limit_customers(conn, 2)
    enqueue(conn, [{"customer": customer} for customer in (1, 1, 1, 2, "x", "x", "x", None)])
    enqueue(conn, [{}])
    assert len(claim_all(conn)) == 7
    expected = {"key:customer=1": 2, "key:customer=2": 1, "key:customer=x": 2}
    assert places(conn) == expected  # null and a missing argument have no key
    assert waiting(conn) == {"key:customer=1": 1, "key:customer=x": 1}


def test_a_missing_argument_has_the_default_of_the_handler_as_its_key(conn: Connection) -> None:
    limit_customers(conn, 1, fallback="7")
    enqueue(conn, [{}, {"customer": 7}, {"customer": 8}])
    assert len(claim_all(conn)) == 2
    assert places(conn) == {"key:customer=7": 1, "key:customer=8": 1}


def test_a_long_value_is_stored_as_its_hash(conn: Connection) -> None:
    limit_customers(conn, 1)
    enqueue(conn, [{"customer": "x" * 201}, {"customer": "x" * 201}, {"customer": "x" * 200}])
    assert len(claim_all(conn)) == 2
    assert sorted(len(key) for key in places(conn)) == [len("key:customer=sha256:") + 64, 213]


def test_a_job_starts_only_if_all_its_limits_have_room(conn: Connection) -> None:
    limit_customers(conn, 1)
    set_limit(conn, "queue:default", 2)
    enqueue(conn, [{"customer": customer} for customer in (1, 1, 2, 3)])
    assert len(claim_all(conn)) == 2
    assert places(conn) == {"key:customer=1": 1, "key:customer=2": 1, "queue:default": 2}
    assert sum(waiting(conn).values()) == 2


def _commit(conn: Connection, lease: Lease) -> None:
    steps.commit(conn, lease)


def _commit_many(conn: Connection, lease: Lease) -> None:
    outcomes = "SELECT outcome FROM faultline.commit_many(%s, %s, %s)"
    assert steps.value(conn, outcomes, *columns([lease])) == "committed"


def _enter(conn: Connection, lease: Lease) -> None:
    steps.enter(conn, lease)


def _fail(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'no', '1 hour')", lease)


def _give_up(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'no', reason => 'rejected')", lease)


def _release(conn: Connection, lease: Lease) -> None:
    steps.release(conn, lease)


def _release_after_outage(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.release_after_outage(%s, %s, %s, 'away')", lease)


def _defer(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.defer_many(%s, %s, %s)", columns([lease]))


def _cancel(conn: Connection, lease: Lease) -> None:
    steps.cancel(conn, lease.job_id)


def _cancel_many(conn: Connection, lease: Lease) -> None:
    """The first waiting job is cancelled by the same statement."""
    conn.execute(
        "SELECT faultline.cancel_many(ARRAY[%s] || ARRAY("
        " SELECT job_id FROM faultline.waiting_jobs ORDER BY due_at, job_id LIMIT 1))",
        [lease.job_id],
    )


def _expire(conn: Connection, lease: Lease) -> None:
    steps.expire(conn, lease)
    assert steps.reconcile(conn) == [lease.job_id]


def _lose_worker(conn: Connection, lease: Lease) -> None:
    assert steps.reconcile(conn, dead_workers=["first"]) == [lease.job_id]


@pytest.mark.parametrize(
    "end",
    [
        *(_commit, _commit_many, _enter, _fail, _give_up, _release, _release_after_outage),
        *(_defer, _cancel, _cancel_many, _expire, _lose_worker),
    ],
)
def test_every_end_of_a_lease_frees_its_place_and_lets_the_next_job_start(
    conn: Connection, end: Callable[[Connection, Lease], None]
) -> None:
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}] * 4)
    [lease] = claim_all(conn)
    before = due(conn)
    end(conn, lease)
    assert places(conn) == {}
    assert due(conn) >= before + 1
    [successor] = claim_all(conn, worker="second")
    assert places(conn) == {"task:charge": 1}
    assert successor.job_id == lease.job_id or successor.token == 1
    assert_consistent(conn)


def test_waiting_jobs_start_in_the_order_of_priority_and_time(conn: Connection) -> None:
    set_limit(conn, "task:charge", 1)
    [_first] = enqueue(conn, [{}])
    lease = claim_all(conn)[0]
    second, third = enqueue(conn, [{}] * 2)
    [urgent] = enqueue(conn, [{}], priority=0)
    assert claim_all(conn) == []
    order = []
    for _ in range(3):
        steps.commit(conn, lease)
        [lease] = claim_all(conn)
        order.append(lease.job_id)
    assert order == [urgent, second, third]


def test_a_waiting_job_that_is_cancelled_leaves_the_line(conn: Connection) -> None:
    set_limit(conn, "task:charge", 1)
    _running, cancelled, waits = enqueue(conn, [{}] * 3)
    [lease] = claim_all(conn)
    assert steps.cancel(conn, cancelled) == "failed"
    assert waiting(conn) == {"task:charge": 1}
    steps.commit(conn, lease)
    assert [each.job_id for each in claim_all(conn)] == [waits]


def test_a_deleted_waiting_job_leaves_no_row(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    job_id, _ = enqueue(conn, [{}] * 2)
    assert claim_all(conn) == []
    conn.execute("SELECT faultline.delete(%s)", [job_id])
    repair(conn)
    assert waiting(conn) == {"task:charge": 1}
    assert_consistent(conn)


def test_a_retried_job_waits_for_a_place_again(conn: Connection) -> None:
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}] * 2)
    [lease] = claim_all(conn)
    _give_up(conn, lease)
    [other] = claim_all(conn)
    conn.execute("SELECT faultline.retry(%s)", [lease.job_id])
    assert claim_all(conn) == []
    assert waiting(conn) == {"task:charge": 1}
    steps.commit(conn, other)
    assert [each.job_id for each in claim_all(conn)] == [lease.job_id]


# ── changes of a limit ───────────────────────────────────────────────────────────────────────────


def test_a_raised_limit_lets_waiting_jobs_start_at_once(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    enqueue(conn, [{}] * 5)
    assert claim_all(conn) == []
    set_limit(conn, "task:charge", 3)
    assert due(conn) == 3
    assert len(claim_all(conn)) == 3


def test_a_lowered_limit_stops_nothing_and_starts_nothing_until_enough_have_ended(
    conn: Connection,
) -> None:
    set_limit(conn, "task:charge", 3)
    enqueue(conn, [{}] * 5)
    leases = claim_all(conn)
    set_limit(conn, "task:charge", 1)
    for lease in leases[:2]:
        steps.commit(conn, lease)
        assert claim_all(conn) == []
    steps.commit(conn, leases[2])
    assert len(claim_all(conn)) == 1


def test_a_new_limit_counts_the_jobs_that_run_already(conn: Connection) -> None:
    enqueue(conn, [{}] * 6)
    leases = claim_all(conn, 3)
    set_limit(conn, "task:charge", 4)
    assert len(claim_all(conn)) == 1
    assert places(conn) == {"task:charge": 4}
    steps.commit(conn, leases[0])
    assert len(claim_all(conn)) == 1


def test_a_removed_limit_lets_all_its_jobs_start(conn: Connection) -> None:
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}] * 5)
    claim_all(conn)
    assert value(conn, "SELECT faultline.reset_limit('task:charge')") == "removed"
    assert len(claim_all(conn)) == 4
    assert places(conn) == {}


def test_code_does_not_change_what_an_operator_has_set_until_it_is_reset(conn: Connection) -> None:
    declare = "SELECT faultline.declare_limits(%s)"
    conn.execute(declare, [Jsonb({"task:charge": {"max_running": 3}})])
    set_limit(conn, "task:charge", 1)
    conn.execute(declare, [Jsonb({"task:charge": {"max_running": 5}})])
    running = "SELECT max_running FROM faultline.limits"
    assert value(conn, running) == 1
    assert value(conn, "SELECT faultline.reset_limit('task:charge')") == "declared"
    assert value(conn, running) == 5


def test_an_unchanged_declaration_writes_nothing(conn: Connection) -> None:
    limit_customers(conn, 2)
    version = "SELECT xmin::text FROM faultline.limits"
    before = value(conn, version)
    limit_customers(conn, 2)
    assert value(conn, version) == before


def test_a_change_waits_for_claims_in_progress_and_gives_up_after_two_seconds(
    conn: Connection, connect: Connect
) -> None:
    other = connect()
    other.execute("BEGIN")
    claim_all(other)
    with refused("55P03"):
        set_limit(conn, "task:charge", 1)
    other.execute("COMMIT")
    set_limit(conn, "task:charge", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        "'task:charge', -1",
        "'task:charge', 1000001",
        "'task:charge'",
        "'charge', 1",
        "'key:', 1",
        "'task:charge', rate_jobs => 1",
        "'task:charge', rate_jobs => 0, rate_seconds => 1",
        "'task:charge', rate_jobs => 1, rate_seconds => 0",
        "'task:charge', 1, task => 'charge', argument => 'customer'",
    ],
)
def test_an_invalid_limit_is_refused(conn: Connection, arguments: str) -> None:
    with refused("FL005"):
        conn.execute(f"SELECT faultline.set_limit({arguments})")


def test_an_unknown_limit_cannot_be_reset(conn: Connection) -> None:
    with refused("FL012"):
        conn.execute("SELECT faultline.reset_limit('task:nothing')")


# ── claims beside each other ─────────────────────────────────────────────────────────────────────


def test_two_claims_at_once_never_exceed_a_limit(conn: Connection, connect: Connect) -> None:
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}] * 4)
    other = connect()
    other.execute("BEGIN")
    [lease] = claim_all(other, 1)
    assert claim_all(conn) == []  # it has waited a moment for the other claim, in vain
    other.execute("COMMIT")
    assert places(conn) == {"task:charge": 1}
    steps.commit(conn, lease)
    assert len(claim_all(conn)) == 1
    assert_consistent(conn)


def test_a_claim_that_stalls_does_not_keep_jobs_of_other_keys_from_others(
    conn: Connection, connect: Connect
) -> None:
    limit_customers(conn, 5)
    enqueue(conn, [{"customer": 1}] * 4 + [{"customer": 2}] * 2)
    other = connect()
    other.execute("BEGIN")
    claim_all(other, 1)
    assert len(claim_all(conn, 3)) == 2
    other.execute("ROLLBACK")
    steps.wait_until(lambda: len(claim_all(conn, 1)) == 1, "the job that waited for the decision")


def test_claims_of_jobs_under_limits_need_read_committed(conn: Connection) -> None:
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}])
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    with refused("FL005"):
        claim_all(conn)
    conn.execute("ROLLBACK")
    assert len(claim_all(conn)) == 1


def test_above_read_committed_a_commit_leaves_the_next_job_to_the_repair(conn: Connection) -> None:
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}] * 2)
    [lease] = claim_all(conn)
    assert claim_all(conn) == []
    steps.begin_fenced(conn, lease, "REPEATABLE READ")
    steps.commit(conn, lease)
    conn.execute("COMMIT")
    assert places(conn) == {}
    assert claim_all(conn) == []
    assert repair(conn) == (0, 1, 0)
    assert len(claim_all(conn)) == 1


# ── long lines ───────────────────────────────────────────────────────────────────────────────────


def test_a_long_line_of_one_key_does_not_hide_the_jobs_behind_it(conn: Connection) -> None:
    limit_customers(conn, 1)
    enqueue(conn, [{"customer": 1}] * 3000)
    enqueue(conn, [{"customer": 2}])
    started = [lease.job_id for _ in range(4) for lease in claim_all(conn, 1)]
    assert len(started) == 2
    assert places(conn) == {"key:customer=1": 1, "key:customer=2": 1}
    assert_consistent(conn)


# ── repair ───────────────────────────────────────────────────────────────────────────────────────


def test_the_repair_frees_places_of_jobs_that_do_not_run(conn: Connection) -> None:
    set_limit(conn, "task:charge", 1)
    _running, *_ = enqueue(conn, [{}] * 2)
    claim_all(conn)
    other = "01890000-0000-7000-8000-000000000000"
    conn.execute("INSERT INTO faultline.places VALUES ('task:charge', %s)", [other])
    assert repair(conn)[0] == 1
    assert places(conn) == {"task:charge": 1}


def test_the_repair_lets_jobs_start_for_which_there_is_room(conn: Connection) -> None:
    set_limit(conn, "task:charge", 2)
    enqueue(conn, [{}] * 5)
    claim_all(conn)
    conn.execute("ALTER TABLE faultline.jobs DISABLE TRIGGER free_places")
    conn.execute("UPDATE faultline.jobs SET lease_expires_at = clock_timestamp()")
    assert len(steps.reconcile(conn)) == 2
    assert sum(places(conn).values()) == 2
    assert repair(conn) == (2, 2, 0)
    assert len(claim_all(conn)) == 2
