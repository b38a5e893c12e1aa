"""Retention: which rows are purged and which stay, without waiting for locks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from faultline.postgres.sessions import run
from faultline.statements.invariants import INVARIANTS, check

from .ageing import failed, made, succeeded
from .steps import (
    Connect,
    Connection,
    claim,
    claim_new,
    commit,
    enqueue,
    enter,
    entries,
    logged,
    never_waits,
    one,
    refused,
    release,
    rows,
    set_job,
    start_and_wait_until_blocked,
    value,
)

PURGE_JOBS = "SELECT * FROM faultline.purge_jobs('7 days', '30 days')"
PURGE_LEDGER = "SELECT * FROM faultline.purge_ledger('90 days')"


def purge_jobs(conn: Connection) -> tuple[int, int]:
    done: tuple[int, int] = one(conn, PURGE_JOBS)[:2]
    return done


def purge_ledger(conn: Connection) -> int:
    return int(one(conn, PURGE_LEDGER)[0])


def job_ids(conn: Connection) -> set[UUID]:
    return {job_id for (job_id,) in rows(conn, "SELECT id FROM faultline.jobs")}


def violations(conn: Connection) -> list[Any]:
    return [found for invariant in INVARIANTS for found in run(conn, check(invariant))]


# ── which jobs go ────────────────────────────────────────────────────────────────────────────────


def test_finished_and_failed_jobs_are_kept_for_their_own_time(conn: Connection) -> None:
    succeeded(conn, "8 days")
    failed(conn, "31 days")
    kept = {succeeded(conn, "6 days").job_id, failed(conn, "29 days")}
    assert purge_jobs(conn) == (1, 1)
    assert job_ids(conn) == kept


def test_an_old_job_that_has_not_ended_is_never_purged(conn: Connection) -> None:
    running = made(conn, "400 days")
    assert claim(conn).job_id == running
    waiting = made(conn, "400 days")
    assert purge_jobs(conn) == (0, 0)
    assert job_ids(conn) == {running, waiting}


def test_an_old_job_that_ended_only_now_is_kept(conn: Connection) -> None:
    made(conn, "400 days")
    commit(conn, claim(conn))
    assert purge_jobs(conn) == (0, 0)


def test_null_keeps_for_ever(conn: Connection) -> None:
    done, dead = succeeded(conn, "400 days").job_id, failed(conn, "400 days")
    conn.execute("SELECT faultline.purge_jobs(NULL, NULL)")
    assert job_ids(conn) == {done, dead}
    conn.execute("SELECT faultline.purge_jobs('7 days', NULL)")
    assert job_ids(conn) == {dead}
    conn.execute("SELECT faultline.purge_ledger(NULL)")
    assert len(entries(conn)) == 1


def test_the_log_of_a_job_is_purged_with_it(conn: Connection) -> None:
    lease = claim_new(conn)
    for job_id in (failed(conn, "31 days"), lease.job_id):
        conn.execute("SELECT faultline.record_rejection(%s, 1, 'late', 'token_mismatch')", [job_id])
    release(conn, lease)
    purge_jobs(conn)
    for table in ("attempts_log", "rejections"):
        assert rows(conn, f"SELECT job_id FROM faultline.{table}") == [(lease.job_id,)]


def test_a_walk_in_small_steps_sees_every_job_once(conn: Connection) -> None:
    kept = {made(conn, "40 days") for _ in range(3)}
    gone = {failed(conn, "35 days") for _ in range(4)}
    kept |= {made(conn, "33 days") for _ in range(3)}
    after, purged, calls = None, 0, 0
    call = "SELECT * FROM faultline.purge_jobs('7 days', '30 days', %s, batch_size => 2)"
    while calls == 0 or after is not None:
        _, failures, after = one(conn, call, after)
        purged, calls = purged + failures, calls + 1
    assert (purged, calls) == (len(gone), 6)  # ten jobs in steps of two, and one to see the end
    assert job_ids(conn) == kept


def test_a_dry_run_counts_and_leaves_everything(conn: Connection) -> None:
    old = {succeeded(conn, "100 days").job_id, failed(conn, "100 days")}
    call = (
        "SELECT succeeded, failed FROM faultline.purge_jobs('7 days', '30 days', dry_run => true)"
    )
    assert one(conn, call) == (1, 1)
    assert job_ids(conn) == old
    purge_jobs(conn)
    assert (
        value(conn, "SELECT entries FROM faultline.purge_ledger('90 days', dry_run => true)") == 1
    )
    assert len(entries(conn)) == 1


@pytest.mark.parametrize(
    "call",
    [
        "purge_jobs('59 minutes', NULL)",
        "purge_jobs(NULL, '-1 day')",
        "purge_jobs('7 days', '30 days', batch_size => 0)",
        "purge_jobs('7 days', '30 days', batch_size => 10001)",
        "purge_ledger('0')",
        "purge_ledger('1 day', batch_size => NULL)",
    ],
)
def test_a_purge_too_soon_or_of_too_many_rows_is_refused(conn: Connection, call: str) -> None:
    with refused("FL005"):
        conn.execute(f"SELECT * FROM faultline.{call}")


# ── no waiting ─────────────────────────────────────────────────────────────────────────────────


def test_a_locked_job_is_left_for_the_next_time(conn: Connection, connect: Connect) -> None:
    locked, free = failed(conn, "31 days"), failed(conn, "31 days")
    with conn.transaction():
        conn.execute("SELECT FROM faultline.jobs WHERE id = %s FOR KEY SHARE", [locked])
        assert purge_jobs(never_waits(connect())) == (0, 1)
        assert job_ids(conn) == {locked}
    assert purge_jobs(conn) == (0, 1)
    assert free not in job_ids(conn)


def test_claims_commits_and_heartbeats_do_not_wait_for_a_purge(
    conn: Connection, connect: Connect
) -> None:
    failed(conn, "31 days")
    succeeded(conn, "100 days")
    with conn.transaction():
        assert purge_jobs(conn) == (1, 1)
        worker = never_waits(connect())
        lease = claim_new(worker)
        assert worker.execute(
            "SELECT outcome FROM faultline.heartbeat('first', %s, %s, %s)",
            [[part] for part in lease],
        ).fetchall() == [("renewed",)]
        commit(worker, lease)
    assert purge_ledger(conn) == 1


def test_two_purges_at_once_do_not_wait_for_each_other(conn: Connection, connect: Connect) -> None:
    failed(conn, "31 days")
    succeeded(conn, "100 days")
    with conn.transaction():
        assert purge_jobs(conn) == (1, 1)
        assert purge_jobs(never_waits(connect())) == (0, 0)
    with conn.transaction():
        assert purge_ledger(conn) == 1
        assert purge_ledger(never_waits(connect())) == 0


def test_a_job_that_is_being_retried_is_kept(conn: Connection, connect: Connect) -> None:
    job_id = failed(conn, "31 days")
    with conn.transaction():
        conn.execute("SELECT faultline.retry(%s)", [job_id])
        assert purge_jobs(never_waits(connect())) == (0, 0)
    assert claim(conn).job_id == job_id


def test_a_retry_that_comes_too_late_is_told_so(conn: Connection, connect: Connect) -> None:
    job_id = failed(conn, "31 days")

    def retry(late: Connection) -> None:
        late.execute("SELECT faultline.retry(%s)", [job_id])

    with conn.transaction():
        assert purge_jobs(conn) == (0, 1)
        waiting = start_and_wait_until_blocked(conn, connect(), retry)
    with refused("FL006"):
        waiting.result(timeout=10)


# ── what a purge means ───────────────────────────────────────────────────────────────────────────


def test_a_late_commit_for_a_purged_job_is_refused_with_and_without_its_entry(
    conn: Connection,
) -> None:
    late = succeeded(conn, "100 days")
    assert purge_jobs(conn) == (1, 0)
    with refused("FL001", reason="unknown_job"):
        enter(conn, late)
    assert purge_ledger(conn) == 1
    with refused("FL001", reason="unknown_job"):
        enter(conn, late)
    assert one(
        conn, "SELECT outcome, reason FROM faultline.commit_many(%s, %s, %s)", *[[x] for x in late]
    ) == ("stale", "unknown_job")
    assert entries(conn) == []


def test_a_key_is_remembered_for_as_long_as_its_job(conn: Connection) -> None:
    first = succeeded(conn, "8 days", key="invoice-42").job_id
    assert enqueue(conn, idempotency_key="invoice-42") == (first, True)
    purge_jobs(conn)
    again, existed = enqueue(conn, idempotency_key="invoice-42")
    assert again != first
    assert not existed


def test_a_job_inserted_again_under_its_id_cannot_take_effect_again(conn: Connection) -> None:
    """As after loading an old dump: the ledger entry refuses a second commit."""
    lease = succeeded(conn, "8 days")
    purge_jobs(conn)
    conn.execute("INSERT INTO faultline.jobs (id, task) VALUES (%s, 'send_mail')", [lease.job_id])
    with refused("23505"):
        commit(conn, claim(conn))


# ── the ledger ───────────────────────────────────────────────────────────────────────────────────


def test_an_entry_is_kept_while_its_job_exists_whatever_retention_is_asked_for(
    conn: Connection,
) -> None:
    lease = succeeded(conn, "400 days")
    assert purge_ledger(conn) == 0
    assert entries(conn) == [lease]
    assert violations(conn) == []
    purge_jobs(conn)
    assert entries(conn) == [lease]
    assert violations(conn) == []
    assert purge_ledger(conn) == 1
    assert entries(conn) == []
    assert violations(conn) == []


def test_an_entry_is_kept_for_its_own_time(conn: Connection) -> None:
    young = succeeded(conn, "89 days")
    succeeded(conn, "91 days")
    purge_jobs(conn)
    assert purge_ledger(conn) == 1
    assert entries(conn) == [young]


def test_after_a_purge_the_ledger_is_guarded_as_before(conn: Connection) -> None:
    kept = succeeded(conn, "1 day")
    with conn.transaction():
        purge_ledger(conn)
        with refused("FL002"), conn.transaction():
            conn.execute("DELETE FROM faultline.ledger")
    assert entries(conn) == [kept]


def test_a_rejection_recorded_after_its_job_was_purged_is_purged_with_the_ledger(
    conn: Connection,
) -> None:
    late = succeeded(conn, "100 days")
    purge_jobs(conn)
    record = "SELECT faultline.record_rejection(%s, 1, 'late', 'unknown_job')"
    conn.execute(record, [late.job_id])
    purge_ledger(conn)
    recorded = "SELECT count(*) FROM faultline.rejections"
    assert value(conn, recorded) == 1  # it is recent
    conn.execute("UPDATE faultline.rejections SET rejected_at = now() - interval '91 days'")
    purge_ledger(conn)
    assert value(conn, recorded) == 0


def test_a_job_with_a_long_log_leaves_nothing_behind(conn: Connection) -> None:
    job_id = made(conn, "31 days")
    for _ in range(3):
        conn.execute("SELECT faultline.cancel(%s)", [job_id])
        conn.execute("SELECT faultline.retry(%s)", [job_id])
    conn.execute("SELECT faultline.cancel(%s)", [job_id])
    set_job(conn, job_id, "finished_at = clock_timestamp() - interval '31 days'")
    assert len(logged(conn, job_id)) == 7
    purge_jobs(conn)
    assert logged(conn, job_id) == []


# ── unique keys ──────────────────────────────────────────────────────────────────────────────────


def test_purging_a_job_removes_its_row_of_unique_jobs(conn: Connection) -> None:
    old, kept = succeeded(conn, "8 days"), succeeded(conn, "6 days")
    for job in (old, kept):
        conn.execute(
            "INSERT INTO faultline.unique_jobs (job_id, unique_key, while_) VALUES (%s, 'k', 'queued')",
            [job.job_id],
        )
    assert purge_jobs(conn) == (1, 0)
    assert rows(conn, "SELECT job_id FROM faultline.unique_jobs") == [(kept.job_id,)]


def test_unique_keys_are_purged_in_pages(conn: Connection) -> None:
    conn.execute(
        "INSERT INTO faultline.unique_keys SELECT 'k' || n, gen_random_uuid()"
        " FROM generate_series(1, 5) AS n"
    )
    page = "SELECT keys, last_key FROM faultline.purge_unique_keys(%s, 2)"
    assert conn.execute(page, [None]).fetchone() == (2, "k2")
    assert conn.execute(page, ["k2"]).fetchone() == (2, "k4")
    assert conn.execute(page, ["k4"]).fetchone() == (1, None)
    assert conn.execute(page, [None]).fetchone() == (0, None)
