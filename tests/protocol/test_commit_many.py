"""faultline.commit_many checks each job of a batch on its own."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from .steps import (
    Connect,
    Connection,
    Lease,
    Row,
    all_at_once,
    begin_fenced,
    cancel,
    claim_new,
    claim_new_batch,
    columns,
    commit,
    entries,
    expire,
    never_waits,
    refused,
    rows,
    state,
    take_over,
)


def commit_many(conn: Connection, leases: Sequence[Lease]) -> list[Row]:
    """(outcome, reason, current token) for each lease."""
    call = "SELECT job_id, outcome, reason, current_token FROM faultline.commit_many(%s, %s, %s)"
    answers = rows(conn, call, *columns(leases))
    assert [answer[0] for answer in answers] == [lease.job_id for lease in leases]
    return [answer[1:] for answer in answers]


def test_every_job_of_a_batch_succeeds_and_is_entered(conn: Connection) -> None:
    leases = claim_new_batch(conn, 3)
    assert commit_many(conn, leases) == [("committed", None, 1)] * 3
    assert entries(conn) == leases
    assert {state(conn, lease.job_id) for lease in leases} == {"succeeded"}


def test_every_entry_names_its_worker_and_carries_its_own_result(conn: Connection) -> None:
    leases = claim_new_batch(conn, 2, worker="first")
    results = ['{"n": 1}', None]
    conn.execute(
        "SELECT faultline.commit_many(%s, %s, %s, %s::text[]::jsonb[])", [*columns(leases), results]
    )
    entered = "SELECT worker, result FROM faultline.ledger ORDER BY job_id"
    assert rows(conn, entered) == [("first", {"n": 1}), ("first", None)]


def test_a_batch_that_is_sent_twice_is_already_yours(conn: Connection) -> None:
    leases = claim_new_batch(conn, 2)
    commit_many(conn, leases)
    assert commit_many(conn, leases) == [("already_yours", None, 1)] * 2
    assert entries(conn) == leases


def test_a_job_that_another_worker_committed_is_stale_and_not_yours(conn: Connection) -> None:
    lease = claim_new(conn)
    commit(conn, take_over(conn, lease))
    assert commit_many(conn, [lease]) == [("stale", "token_mismatch", 2)]


def test_stale_jobs_are_reported_with_their_reasons_and_the_others_commit(
    conn: Connection,
) -> None:
    good, cancelled, expired = claim_new_batch(conn, 3)
    unknown = Lease(uuid4(), 1, uuid4())
    cancel(conn, cancelled.job_id)
    expire(conn, expired)
    assert commit_many(conn, [cancelled, good, expired, unknown]) == [
        ("stale", "not_running", 1),
        ("committed", None, 1),
        ("stale", "lease_expired", 1),
        ("stale", "unknown_job", None),
    ]
    assert entries(conn) == [good]


def test_the_right_token_with_another_lease_is_stale(conn: Connection) -> None:
    lease = claim_new(conn)._replace(lease_id=uuid4())
    assert commit_many(conn, [lease]) == [("stale", "token_mismatch", 1)]
    assert state(conn, lease.job_id) == "running"


def test_a_job_given_with_both_its_tokens_is_committed_under_the_newer(conn: Connection) -> None:
    old = claim_new(conn)
    new = take_over(conn, old)
    assert commit_many(conn, [old, new]) == [("stale", "token_mismatch", 2), ("committed", None, 2)]
    assert entries(conn) == [new]


def test_a_batch_in_which_everything_is_stale_enters_nothing_and_raises_nothing(
    conn: Connection,
) -> None:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    assert commit_many(conn, [lease]) == [("stale", "not_running", 1)]
    assert entries(conn) == []


def test_a_job_that_a_batch_names_twice_is_entered_once(conn: Connection) -> None:
    lease = claim_new(conn)
    assert commit_many(conn, [lease, lease]) == [("committed", None, 1)] * 2
    assert entries(conn) == [lease]


def test_an_empty_batch_is_answered_with_nothing(conn: Connection) -> None:
    assert commit_many(conn, []) == []


def test_a_locked_job_is_reported_and_not_waited_for(conn: Connection, connect: Connect) -> None:
    held, free = claim_new_batch(conn, 2)
    begin_fenced(connect(), held)
    answers = commit_many(never_waits(conn), [held, free])
    assert answers == [("locked", None, 1), ("committed", None, 1)]
    assert entries(conn) == [free]


def test_a_job_that_was_locked_can_be_sent_again(conn: Connection, connect: Connect) -> None:
    lease = claim_new(conn)
    holder = begin_fenced(connect(), lease)
    commit_many(never_waits(conn), [lease])
    holder.execute("ROLLBACK")
    assert commit_many(conn, [lease]) == [("committed", None, 1)]


def test_a_batch_sent_from_many_connections_at_once_is_entered_once(
    conn: Connection, connect: Connect
) -> None:
    leases = claim_new_batch(conn, 20)
    senders = [never_waits(connect()) for _ in range(6)]
    shuffled = dict(zip(senders, (leases, leases[::-1]) * 3, strict=True))
    answers = all_at_once(senders, lambda sender: commit_many(sender, shuffled[sender]))
    outcomes = [outcome for answer in answers for outcome, _, _ in answer]
    assert outcomes.count("committed") == 20
    assert set(outcomes) <= {"committed", "already_yours", "locked"}
    assert entries(conn) == leases


def test_a_batch_that_is_rolled_back_has_no_effect(conn: Connection) -> None:
    leases = claim_new_batch(conn, 2)
    conn.execute("BEGIN")
    commit_many(conn, leases)
    conn.execute("ROLLBACK")
    assert entries(conn) == []
    assert commit_many(conn, leases) == [("committed", None, 1)] * 2


def test_single_entries_are_fenced_again_after_a_batch(conn: Connection) -> None:
    batch = claim_new_batch(conn, 2)
    stale = claim_new(conn)
    take_over(conn, stale)
    conn.execute("BEGIN")
    commit_many(conn, batch)
    with refused("FL001", reason="token_mismatch"):
        commit(conn, stale)


def test_a_lease_that_ends_between_the_verdict_and_the_entry_is_refused_with_its_batch(
    conn: Connection,
) -> None:
    conn.execute(
        "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " UPDATE faultline.jobs SET lease_expires_at = clock_timestamp(); RETURN NEW; END $$;"
        "CREATE TRIGGER dawdle BEFORE INSERT ON faultline.ledger"
        " FOR EACH ROW EXECUTE FUNCTION dawdle()"
    )
    with refused("FL001", reason="lease_expired"):
        commit_many(conn, claim_new_batch(conn, 2))
    assert entries(conn) == []


def test_a_batch_may_hold_jobs_of_several_workers(conn: Connection) -> None:
    first = claim_new(conn, worker="first")
    second = claim_new(conn, worker="second")
    commit_many(conn, [first, second])
    entered = "SELECT worker FROM faultline.ledger ORDER BY worker"
    assert rows(conn, entered) == [("first",), ("second",)]
