"""faultline.reconcile requeues the jobs of dead workers once, or fails them."""

from __future__ import annotations

from .steps import (
    Connect,
    Connection,
    Lease,
    all_at_once,
    begin_fenced,
    claim,
    claim_batch,
    claim_new,
    claim_new_batch,
    commit,
    enqueue,
    expire,
    job,
    logged,
    never_waits,
    one,
    reconcile,
    rows,
    set_job,
    state,
)


def expired_batch(conn: Connection, count: int) -> list[Lease]:
    leases = claim_new_batch(conn, count)
    for lease in leases:
        expire(conn, lease)
    return leases


def test_a_job_whose_lease_expired_is_queued_again_without_an_owner(
    conn: Connection,
) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    assert reconcile(conn) == [lease.job_id]
    stored = job(conn, lease.job_id)
    assert (stored["state"], stored["attempts"], stored["fencing_token"]) == ("queued", 1, 1)
    assert (stored["lease_owner"], stored["lease_expires_at"]) == (None, None)


def test_the_answer_has_the_former_worker_and_the_new_state(conn: Connection) -> None:
    lease = claim_new(conn, worker="first")
    expire(conn, lease)
    answer = one(conn, "SELECT * FROM faultline.reconcile()")
    assert answer == (lease.job_id, 1, "first", 1, "queued", "expired")


def test_a_lease_that_still_runs_is_left_alone(conn: Connection) -> None:
    lease = claim_new(conn)
    assert reconcile(conn) == []
    assert state(conn, lease.job_id) == "running"


def test_a_job_that_waits_is_left_alone(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    assert reconcile(conn, dead_workers=["first"]) == []
    assert (state(conn, job_id), logged(conn, job_id)) == ("queued", [])


def test_a_job_that_a_dead_worker_had_committed_is_left_alone(conn: Connection) -> None:
    lease = claim_new(conn, worker="dead")
    commit(conn, lease)
    assert reconcile(conn, dead_workers=["dead"], lapsed_leases=[lease.lease_id]) == []


def test_no_more_than_the_limit_is_reconciled_and_the_oldest_job_first(conn: Connection) -> None:
    leases = expired_batch(conn, 3)
    set_job(conn, leases[1].job_id, "created_at = '2001-01-01'")
    assert reconcile(conn, max_jobs=1) == [leases[1].job_id]
    assert len(reconcile(conn, max_jobs=100)) == 2


def test_the_job_of_a_dead_worker_is_reconciled_before_its_lease_expires(
    conn: Connection,
) -> None:
    lost = claim_new(conn, worker="dead")
    kept = claim_new(conn, worker="alive")
    answer = "SELECT job_id, cause FROM faultline.reconcile(dead_workers => '{dead}')"
    assert rows(conn, answer) == [(lost.job_id, "worker_lost")]
    assert (state(conn, lost.job_id), state(conn, kept.job_id)) == ("queued", "running")


def test_expired_jobs_of_a_dead_worker_do_not_use_up_the_limit_twice(conn: Connection) -> None:
    leases = claim_new_batch(conn, 4, worker="dead")
    for lease in leases[:2]:
        expire(conn, lease)
    assert len(reconcile(conn, max_jobs=4, dead_workers=["dead"])) == 4


def test_the_limit_holds_for_the_jobs_of_dead_workers_too(conn: Connection) -> None:
    claim_new_batch(conn, 3, worker="dead")
    assert len(reconcile(conn, max_jobs=2, dead_workers=["dead"])) == 2


def test_a_lease_that_an_observer_saw_lapse_is_reconciled(conn: Connection) -> None:
    lapsed, kept = claim_new_batch(conn, 2)
    assert reconcile(conn, lapsed_leases=[lapsed.lease_id]) == [lapsed.job_id]
    assert state(conn, kept.job_id) == "running"


def test_a_lapsed_lease_that_was_superseded_meanwhile_reconciles_nothing(
    conn: Connection,
) -> None:
    lease = claim_new(conn)
    expire(conn, lease)
    claim(conn, worker="second")
    assert reconcile(conn, lapsed_leases=[lease.lease_id]) == []


def test_only_the_named_queues_are_reconciled(conn: Connection) -> None:
    for queue in ("mail", "letters"):
        enqueue(conn, queue=queue)
        expire(conn, claim_batch(conn, queues=[queue])[0])
    [taken] = reconcile(conn, queues=["mail"])
    assert job(conn, taken)["queue"] == "mail"


def test_a_job_without_attempts_left_fails_as_poison(conn: Connection) -> None:
    lease = claim_new(conn, max_attempts=1)
    expire(conn, lease)
    reconcile(conn)
    failed_job = job(conn, lease.job_id)
    assert (failed_job["state"], failed_job["failed_reason"]) == ("failed", "poison")
    assert failed_job["finished_at"] is not None
    assert claim_batch(conn) == []


def test_a_job_with_an_attempt_left_is_queued_again(conn: Connection) -> None:
    lease = claim_new(conn, max_attempts=2)
    expire(conn, lease)
    reconcile(conn)
    assert state(conn, lease.job_id) == "queued"


def test_every_reconciled_job_is_logged_with_the_cause(conn: Connection) -> None:
    expired = claim_new(conn, worker="slow")
    lost = claim_new(conn, worker="dead")
    expire(conn, expired)
    reconcile(conn, dead_workers=["dead"])
    assert logged(conn, expired.job_id) == [(1, 1, "slow", "expired", None)]
    assert logged(conn, lost.job_id) == [(1, 1, "dead", "worker_lost", None)]


def test_an_expired_job_of_a_dead_worker_is_reconciled_once(conn: Connection) -> None:
    lease = claim_new(conn, worker="dead")
    expire(conn, lease)
    taken = reconcile(conn, dead_workers=["dead"], lapsed_leases=[lease.lease_id])
    assert taken == [lease.job_id]
    assert logged(conn, lease.job_id) == [(1, 1, "dead", "worker_lost", None)]


def test_locked_jobs_are_skipped_and_not_waited_for(conn: Connection, connect: Connect) -> None:
    fenced, free = claim_new_batch(conn, 2)
    begin_fenced(connect(), fenced)
    expire(conn, fenced)
    expire(conn, free)
    assert reconcile(never_waits(conn)) == [free.job_id]


def test_locked_jobs_of_dead_workers_are_skipped_as_well(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn, worker="dead")
    begin_fenced(connect(), lease)
    never_waits(conn)
    assert reconcile(conn, dead_workers=["dead"], lapsed_leases=[lease.lease_id]) == []


def test_two_reconcilers_under_way_at_once_never_share_a_job(
    conn: Connection, connect: Connect
) -> None:
    expired_batch(conn, 3)
    first, second = connect(), never_waits(connect())
    first.execute("BEGIN")
    taken, rest = set(reconcile(first, max_jobs=2)), set(reconcile(second))
    assert (len(taken), len(rest), taken & rest) == (2, 1, set())


def test_ten_reconcilers_at_once_reconcile_each_job_once(
    conn: Connection, connect: Connect
) -> None:
    given = [lease.job_id for lease in expired_batch(conn, 60)]
    answers = all_at_once(
        [connect() for _ in range(10)],
        lambda reconciler: reconcile(reconciler, dead_workers=["first"]),
    )
    assert sorted(job_id for taken in answers for job_id in taken) == given
    assert one(conn, "SELECT count(*) FROM faultline.attempts_log") == (60,)


def test_a_reconciled_job_is_due_even_if_the_clock_was_set_back(conn: Connection) -> None:
    lease = claim_new(conn)
    set_job(conn, lease[0], "next_run_at = clock_timestamp() + interval '1 day'")
    expire(conn, lease)
    assert reconcile(conn) == [lease[0]]
    assert claim(conn)[0] == lease[0]
