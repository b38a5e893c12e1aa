"""faultline.claim gives each job to one worker, with a token never issued before."""

from __future__ import annotations

import pytest

from .steps import (
    Connect,
    Connection,
    all_at_once,
    cancel,
    claim,
    claim_batch,
    claim_new,
    commit,
    enqueue,
    enqueue_many,
    expire,
    is_at_least_from_now,
    job,
    logged,
    make_due,
    never_waits,
    one,
    refused,
    release,
    state,
)


def test_a_better_priority_is_claimed_first_however_long_the_others_have_waited(
    conn: Connection,
) -> None:
    by_priority = {priority: enqueue(conn, priority=priority)[0] for priority in (9, 0, 5)}
    make_due(conn, by_priority[9], ago="1 hour")
    assert [claim(conn).job_id for _ in range(3)] == [by_priority[p] for p in (0, 5, 9)]


def test_of_one_priority_the_job_that_was_due_first_is_claimed_first(conn: Connection) -> None:
    newest, oldest, middle = (enqueue(conn)[0] for _ in range(3))
    make_due(conn, oldest, ago="3 hours")
    make_due(conn, middle, ago="2 hours")
    make_due(conn, newest, ago="1 hour")
    assert [claim(conn).job_id for _ in range(3)] == [oldest, middle, newest]


def test_a_better_priority_in_another_queue_is_claimed_first(conn: Connection) -> None:
    enqueue(conn, queue="mail", priority=6)
    urgent, _ = enqueue(conn, queue="letters", priority=5)
    assert claim_batch(conn, 1, queues=["mail", "letters"])[0].job_id == urgent


def test_a_claim_takes_from_its_own_queues_only(conn: Connection) -> None:
    mail, letters = (enqueue(conn, queue=queue)[0] for queue in ("mail", "letters"))
    other, _ = enqueue(conn, queue="other")
    claimed = claim_batch(conn, queues=["mail", "letters"])
    assert {lease.job_id for lease in claimed} == {mail, letters}
    assert state(conn, other) == "queued"


def test_a_claim_returns_everything_that_running_the_job_needs(conn: Connection) -> None:
    job_id, _ = enqueue(conn, "send_mail", {"to": "ada"}, queue="mail", max_attempts=7)
    needed = "job_id, fencing_token, task, queue, payload, attempts, max_attempts"
    claimed = one(conn, f"SELECT {needed} FROM faultline.claim('w', '{{mail}}')")
    assert claimed == (job_id, 1, "send_mail", "mail", {"to": "ada"}, 1, 7)


def test_every_claim_of_a_job_raises_its_token_by_one_and_draws_a_new_lease(
    conn: Connection,
) -> None:
    enqueue(conn)
    leases = []
    for _ in range(4):
        leases.append(claim(conn))
        release(conn, leases[-1])
    assert [lease.token for lease in leases] == [1, 2, 3, 4]
    assert len({lease.lease_id for lease in leases}) == 4


def test_no_two_jobs_of_a_batch_share_a_lease(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 10)
    assert len({lease.lease_id for lease in claim_batch(conn, 10)}) == 10


def test_a_claimed_job_is_running_for_its_worker_until_its_lease_ends(conn: Connection) -> None:
    enqueue(conn)
    stored = job(conn, claim(conn, worker="first", lease="1 hour").job_id)
    assert (stored["state"], stored["lease_owner"]) == ("running", "first")
    assert stored["lease_seconds"] == 3600
    assert is_at_least_from_now(conn, stored["lease_expires_at"], "59 minutes")
    assert not is_at_least_from_now(conn, stored["lease_expires_at"], "1 hour")


def test_the_attempt_is_counted_when_it_begins(conn: Connection) -> None:
    assert job(conn, claim_new(conn).job_id)["attempts"] == 1


def test_a_claim_never_takes_more_than_it_asked_for(conn: Connection) -> None:
    for queue in ("mail", "letters"):
        for priority in (0, 5, 9):
            enqueue_many(conn, [{}] * 3, queue=queue, priority=priority)
    assert len(claim_batch(conn, 4, queues=["mail", "letters"])) == 4


def test_jobs_that_ended_are_not_claimed(conn: Connection) -> None:
    commit(conn, claim_new(conn))
    cancel(conn, enqueue(conn)[0])
    assert claim_batch(conn) == []


def test_a_locked_job_is_skipped_and_not_waited_for(conn: Connection, connect: Connect) -> None:
    held, free = (enqueue(conn)[0] for _ in range(2))
    holder = connect()
    holder.execute("BEGIN")
    holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [held])
    assert [lease.job_id for lease in claim_batch(never_waits(conn))] == [free]


def test_two_claims_under_way_at_once_never_share_a_job(conn: Connection, connect: Connect) -> None:
    enqueue_many(conn, [{}] * 3)
    first, second = connect(), never_waits(connect())
    first.execute("BEGIN")
    taken = {lease.job_id for lease in claim_batch(first, 2)}
    rest = {lease.job_id for lease in claim_batch(second, 3)}
    assert (len(taken), len(rest), taken & rest) == (2, 1, set())


def test_many_workers_at_once_claim_every_job_once(conn: Connection, connect: Connect) -> None:
    given = {job_id for job_id, _ in enqueue_many(conn, [{}] * 120)}

    def drain(worker: Connection) -> list[tuple[object, int]]:
        mine: list[tuple[object, int]] = []
        while batch := claim_batch(worker, 3):
            mine += [(lease.job_id, lease.token) for lease in batch]
        return mine

    shares = all_at_once([connect() for _ in range(8)], drain)
    taken = [claimed for share in shares for claimed in share]
    assert sorted(taken) == sorted((job_id, 1) for job_id in given)


def test_a_claim_that_finds_too_little_reconciles_expired_jobs(conn: Connection) -> None:
    lost = claim_new(conn)
    expire(conn, lost)
    waiting, _ = enqueue(conn)
    claimed = claim_batch(conn, 2, worker="second")
    assert {(lease.job_id, lease.token) for lease in claimed} == {(waiting, 1), (lost.job_id, 2)}


def test_a_claim_that_finds_enough_reconciles_nothing(conn: Connection) -> None:
    lost = claim_new(conn)
    expire(conn, lost)
    enqueue(conn)
    claim_batch(conn, 1, worker="second")
    assert (state(conn, lost.job_id), job(conn, lost.job_id)["fencing_token"]) == ("running", 1)


def test_a_claim_reconciles_no_more_jobs_than_it_still_wants(conn: Connection) -> None:
    enqueue_many(conn, [{}] * 3)
    for lost in claim_batch(conn, 3):
        expire(conn, lost)
    assert len(claim_batch(conn, 2, worker="second")) == 2
    assert one(conn, "SELECT count(*) FROM faultline.jobs WHERE lease_owner = 'first'") == (1,)


def test_a_claim_reconciles_nothing_in_other_queues(conn: Connection) -> None:
    enqueue(conn, queue="other")
    [lost] = claim_batch(conn, queues=["other"])
    expire(conn, lost)
    assert claim_batch(conn, queues=["default"]) == []
    assert state(conn, lost.job_id) == "running"


def test_a_claim_leaves_leases_alone_that_still_run(conn: Connection) -> None:
    claim_new(conn)
    assert claim_batch(conn, worker="second") == []


def test_a_job_that_keeps_killing_its_workers_is_failed_by_the_next_claim(
    conn: Connection,
) -> None:
    job_id, _ = enqueue(conn, max_attempts=2)
    for worker in ("first", "second"):
        expire(conn, claim(conn, worker=worker))
    assert claim_batch(conn, worker="third") == []
    failed_job = job(conn, job_id)
    assert (failed_job["state"], failed_job["failed_reason"]) == ("failed", "poison")
    assert [entry[:4] for entry in logged(conn, job_id)] == [
        (1, 1, "first", "expired"),
        (2, 2, "second", "expired"),
    ]


@pytest.mark.parametrize(
    ("batch_size", "lease"),
    [(0, "1 minute"), (-1, "1 minute"), (10001, "1 minute"), (1, "0"), (1, "-1 second")],
)
def test_a_claim_for_no_jobs_or_no_time_is_refused(
    conn: Connection, batch_size: int, lease: str
) -> None:
    job_id, _ = enqueue(conn)
    with refused("FL005"):
        claim_batch(conn, batch_size, lease=lease)
    assert state(conn, job_id) == "queued"
