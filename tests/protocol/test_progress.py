"""faultline.report_progress records reports of holders of leases, and never waits."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from .steps import (
    Connect,
    Connection,
    Lease,
    cancel,
    claim_new,
    claim_new_batch,
    columns,
    commit,
    expire,
    never_waits,
    one,
    release,
    rows,
    take_over,
    value,
)


def report(
    conn: Connection, leases: list[Lease], fraction: float = 0.5, message: str | None = None
) -> list[UUID]:
    call = "SELECT job_id FROM faultline.report_progress(%s, %s, %s, %s::real[], %s::text[])"
    same = ([fraction] * len(leases), [message] * len(leases))
    return sorted(job_id for (job_id,) in rows(conn, call, *columns(leases), *same))


def progress(conn: Connection, lease: Lease) -> Any:
    query = "SELECT fencing_token, fraction, message FROM faultline.job_progress WHERE job_id = %s"
    found = rows(conn, query, lease.job_id)
    return found[0] if found else None


def test_reports_of_many_jobs_are_one_statement(conn: Connection) -> None:
    leases = claim_new_batch(conn, 3)
    assert report(conn, leases, 0.25, "1 of 4") == sorted(lease.job_id for lease in leases)
    assert [progress(conn, lease) for lease in leases] == [(1, 0.25, "1 of 4")] * 3


def test_the_last_report_counts(conn: Connection) -> None:
    lease = claim_new(conn)
    report(conn, [lease], 0.2, "first")
    first = value(conn, "SELECT reported_at FROM faultline.job_progress")
    report(conn, [lease, lease], 0.1)
    assert progress(conn, lease) == (1, pytest.approx(0.1), None)
    assert value(conn, "SELECT reported_at FROM faultline.job_progress") > first


def test_a_report_does_not_write_the_jobs_row(conn: Connection) -> None:
    lease = claim_new(conn)
    version = "SELECT ctid, xmin FROM faultline.jobs"
    before = one(conn, version)
    report(conn, [lease])
    assert one(conn, version) == before


def test_a_worker_whose_lease_was_taken_over_cannot_report(conn: Connection) -> None:
    lease = claim_new(conn)
    successor = take_over(conn, lease)
    report(conn, [successor], 0.1)
    assert report(conn, [lease], 0.9) == []
    assert progress(conn, lease) == (2, pytest.approx(0.1), None)


def test_the_right_token_with_another_lease_cannot_report(conn: Connection) -> None:
    lease = claim_new(conn)
    assert report(conn, [lease._replace(lease_id=uuid4())]) == []


@pytest.mark.parametrize("end", ["commit", "release", "cancel", "expire"])
def test_a_report_after_the_end_of_the_attempt_is_left_out(conn: Connection, end: str) -> None:
    lease = claim_new(conn)
    match end:
        case "commit":
            commit(conn, lease)
        case "release":
            release(conn, lease)
        case "cancel":
            cancel(conn, lease.job_id)
        case _:
            expire(conn, lease)
    assert report(conn, [lease]) == []
    assert progress(conn, lease) is None


def test_an_unknown_job_is_left_out(conn: Connection) -> None:
    lease = claim_new(conn)
    assert report(conn, [Lease(uuid4(), 1, uuid4()), lease]) == [lease.job_id]


def test_a_report_skips_a_job_that_is_just_ending_and_waits_for_no_lock(
    conn: Connection, connect: Connect
) -> None:
    ending, going_on = claim_new_batch(conn, 2)
    other = connect()
    with other.transaction():
        commit(other, ending)
        assert report(never_waits(conn), [ending, going_on]) == [going_on.job_id]


def test_a_report_is_recorded_while_its_handler_is_in_a_fenced_step(
    conn: Connection, connect: Connect
) -> None:
    lease = claim_new(conn)
    handler = connect()
    with handler.transaction():
        handler.execute("SELECT faultline.assert_fence(%s, %s, %s)", lease)
        assert report(never_waits(conn), [lease]) == [lease.job_id]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_fraction_outside_of_0_to_1_is_refused(conn: Connection, fraction: float) -> None:
    lease = claim_new(conn)
    with pytest.raises(psycopg.errors.CheckViolation, match="fraction_is_0_to_1"):
        report(conn, [lease], fraction)


def test_a_message_is_cut_at_500_characters(conn: Connection) -> None:
    lease = claim_new(conn)
    report(conn, [lease], 0.5, "ä" * 600)
    assert progress(conn, lease)[2] == "ä" * 500


@pytest.mark.parametrize("removal", ["delete", "purge"])
def test_progress_is_removed_with_its_job(conn: Connection, removal: str) -> None:
    lease = claim_new(conn)
    report(conn, [lease])
    cancel(conn, lease.job_id)
    if removal == "delete":
        conn.execute("SELECT faultline.delete(%s)", [lease.job_id])
    else:
        conn.execute("UPDATE faultline.jobs SET finished_at = finished_at - interval '2 days'")
        older = "id = faultline.uuid7(clock_timestamp() - interval '3 days')"
        with conn.transaction():  # purge walks the ids, which begin with the time
            conn.execute("SET LOCAL session_replication_role = replica")
            conn.execute(f"UPDATE faultline.jobs SET {older}")
            conn.execute(
                "UPDATE faultline.job_progress SET job_id = (SELECT id FROM faultline.jobs)"
            )
        conn.execute("SELECT * FROM faultline.purge_jobs('1 day', '1 day')")
    assert rows(conn, "SELECT FROM faultline.jobs") == []
    assert rows(conn, "SELECT FROM faultline.job_progress") == []
