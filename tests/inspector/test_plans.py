"""How many rows the inspector's statements read from large tables.

They run in the inspector's own sessions, on a database that was never analyzed and on an analyzed one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from faultline.inspector.reader import Reader, ReadTransaction
from faultline.model import JobState
from faultline.statements import job_pages, jobs, leases, rejections, statistics, workers
from faultline.statements.job_filter import JobFilter
from faultline.statements.statement import Statement
from tests.conftest import NewDatabase
from tests.plans.test_plans import COUNTERS, Reads

JOBS = 120_000
OF_EACH = JOBS // 100  # failed, queued, and running; the others have succeeded
PAGE = 10
TABLES = ("jobs", "ledger", "rejections", "attempts_log", "workers", "paused_queues")
# Twenty days of work in three queues. The last lease to run out is the first row.
LOAD = """
    SET session_replication_role = replica;
    INSERT INTO faultline.jobs (
        id, task, queue, state, failed_reason, next_run_at, fencing_token, attempts, lease_id,
        lease_owner, lease_seconds, lease_expires_at, claimed_at, created_at, finished_at,
        idempotency_key)
    SELECT overlay(faultline.first_id_at(made)::text
                   PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid,
           CASE WHEN n % 1000 < 500 THEN 'common' ELSE 'usual' END, 'queue' || n / 7 % 3, state,
           CASE WHEN state = 'failed' THEN 'spent' END,
           CASE WHEN n % 200 = 1 THEN now() + interval '1 day' ELSE made END,
           (state <> 'queued')::int, (state <> 'queued')::int,
           CASE WHEN state <> 'queued' THEN gen_random_uuid() END,
           CASE WHEN state = 'running' THEN 'worker' || n / 100 % 10 END, 60,
           CASE WHEN state = 'running' THEN now() + interval '1 day' - n * interval '1 ms' END,
           made, made, CASE WHEN state IN ('failed', 'succeeded') THEN made END, 'key-' || n
    FROM (SELECT n, now() - interval '20 days' + n * (interval '20 days' / %(jobs)s) AS made,
                 CASE n % 100 WHEN 0 THEN 'failed' WHEN 1 THEN 'queued' WHEN 2 THEN 'running'
                              ELSE 'succeeded' END AS state
          FROM generate_series(1, %(jobs)s) AS n) AS job;
    INSERT INTO faultline.ledger (job_id, fencing_token, lease_id, committed_at)
    SELECT id, fencing_token, lease_id, finished_at FROM faultline.jobs WHERE state = 'succeeded';
    INSERT INTO faultline.rejections (job_id, worker, stale_token, reason, overlap, rejected_at)
    SELECT id, 'late', 1, 'token_mismatch', '0', created_at FROM faultline.jobs ORDER BY id;
    INSERT INTO faultline.attempts_log (job_id, attempt, fencing_token, outcome, claimed_at)
    SELECT id, 1, 1, 'expired', created_at FROM faultline.jobs ORDER BY id;
    INSERT INTO faultline.workers (id, host, pid, queues, holds_locks)
    SELECT 'worker' || n, 'host', n, '{queue0}', false FROM generate_series(0, 9) AS n
"""


@pytest.fixture(scope="module")
def never_analyzed(new_database: NewDatabase, template: str) -> Iterator[str]:
    with new_database(template) as url:
        with psycopg.connect(url, autocommit=True) as loader:
            for table in TABLES:
                loader.execute(
                    f"ALTER TABLE faultline.{table} SET (autovacuum_enabled = off)".encode()
                )
            for statement in LOAD.replace("%(jobs)s", str(JOBS)).split(";\n"):
                loader.execute(statement.encode())
        yield url


@pytest.fixture(scope="module")
def analyzed(new_database: NewDatabase, never_analyzed: str) -> Iterator[str]:
    with new_database(never_analyzed.rpartition("/")[2]) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("ANALYZE")
        yield url


@pytest.fixture(params=["never_analyzed", "analyzed"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def read(url: str, *statements: Statement[Any]) -> tuple[list[Any], Reads]:
    """The answers, and what was read for the last of them."""

    async def act() -> tuple[list[Any], Reads]:
        reader = Reader(url, sessions=1)
        try:
            async with reader.transaction() as tx:
                answers = [await tx.read(statement) for statement in statements[:-1]]
                before = await counters(tx)
                answers.append(await tx.read(statements[-1]))
                after = await counters(tx)
        finally:
            await reader.close()
        changes = {
            name: (after[name][0] - old[0], after[name][1] - old[1]) for name, old in before.items()
        }
        return answers, Reads(
            {name: change[0] for name, change in changes.items()},
            {name: change[1] for name, change in changes.items()},
        )

    return asyncio.run(act())


async def counters(tx: ReadTransaction) -> dict[str, tuple[int, int]]:
    statement = Statement(COUNTERS, (), lambda rows: {name: (a, b) for name, a, b in rows})
    return await tx.read(statement)


def assert_reads(url: str, statement: Statement[Any], *, most: int, index: str | None) -> Any:
    """No table is scanned, the index is used, and at most `most` entries are read."""
    [answer], reads = read(url, statement)
    assert [table for table in TABLES if reads.scans[table]] == []
    if index is not None:
        assert reads.scans[index], reads.scans
    entries = {name: count for name, count in reads.entries.items() if count}
    assert sum(entries.values()) <= most, entries
    return answer


TEN_DAYS_AGO = datetime.now(UTC) - timedelta(days=10)
FILTERS = [
    (JobFilter(), "jobs_pkey"),
    (JobFilter(JobState.SUCCEEDED), "jobs_pkey"),
    (JobFilter(queue="queue1"), "jobs_pkey"),
    (JobFilter(task="rare"), "jobs_pkey"),
    (JobFilter(JobState.QUEUED), "jobs_due"),
    (JobFilter(JobState.QUEUED, "queue1"), "jobs_due"),
    (JobFilter(JobState.QUEUED, "queue1", "rare"), "jobs_due"),
    (JobFilter(JobState.RUNNING), "jobs_leased"),
    (JobFilter(JobState.RUNNING, "queue1", "rare"), "jobs_leased"),
    (JobFilter(JobState.FAILED), "jobs_failed"),
    (JobFilter(JobState.FAILED, "queue1"), "jobs_failed"),
    (JobFilter(JobState.FAILED, "queue1", "rare"), "jobs_failed"),
    (JobFilter(JobState.FAILED, task="rare"), "jobs_failed"),
    (JobFilter(JobState.FAILED, error="Boom"), "jobs_failed"),
    (JobFilter(failed_reason="rare"), "jobs_failed"),
    (JobFilter(JobState.FAILED, finished_before=TEN_DAYS_AGO), "jobs_failed"),
    (JobFilter(JobState.FAILED, "queue1", finished_after=TEN_DAYS_AGO), "jobs_failed"),
    (JobFilter(created_before=TEN_DAYS_AGO), "jobs_pkey"),
    (JobFilter(finished_before=TEN_DAYS_AGO, finished_after=TEN_DAYS_AGO), "jobs_pkey"),
    (JobFilter(JobState.QUEUED, created_after=TEN_DAYS_AGO), "jobs_due"),
]


@pytest.mark.parametrize(("wanted", "index"), FILTERS)
def test_a_page_of_jobs_is_read_from_its_index(url: str, wanted: JobFilter, index: str) -> None:
    examined = 200 if job_pages.is_search(wanted) else PAGE + 1
    queues = 3 if index == "jobs_failed" and wanted.queue is None else 1
    # Each of those looked at, the names of the queues, and each that is shown once more for its columns.
    most = examined * queues + 2 * queues + PAGE + 10

    first = assert_reads(
        url, job_pages.page(wanted, limit=PAGE, max_examined=200), most=most, index=index
    )
    assert first.next is not None
    assert_reads(
        url,
        job_pages.page(wanted, limit=PAGE, max_examined=200, after=first.next),
        most=most,
        index=index,
    )


@pytest.mark.parametrize(("wanted", "index"), FILTERS)
def test_a_page_of_ids_is_read_from_its_index(url: str, wanted: JobFilter, index: str) -> None:
    examined = 200 if job_pages.is_search(wanted) else PAGE + 1
    queues = 3 if index == "jobs_failed" and wanted.queue is None else 1
    most = examined * queues + 2 * queues + 10
    statement = job_pages.id_page(wanted, limit=PAGE, max_examined=200)
    first = assert_reads(url, statement, most=most, index=index)
    assert first.next is not None


def test_a_page_by_time_does_not_walk_the_jobs_outside_of_its_range(url: str) -> None:
    day = timedelta(days=1)
    wanted = JobFilter(created_after=TEN_DAYS_AGO - day, created_before=TEN_DAYS_AGO)
    statement = job_pages.id_page(wanted, limit=JOBS, max_examined=JOBS)
    # A day's jobs, those of an hour on either side, and some more.
    page = assert_reads(url, statement, most=JOBS // 20 * 26 // 24 + 100, index="jobs_pkey")
    assert len(page.ids) == pytest.approx(JOBS / 20, abs=2)
    by_ids = job_pages.id_page(JobFilter(ids=tuple(page.ids[:20])), limit=PAGE)
    assert_reads(url, by_ids, most=30, index="jobs_pkey")


def test_a_page_of_leases_reads_only_leases(url: str) -> None:
    first = assert_reads(url, leases.page(limit=PAGE), most=OF_EACH + 10, index="jobs_leased")
    second = assert_reads(
        url, leases.page(limit=PAGE, after=first.next), most=OF_EACH + 10, index="jobs_leased"
    )

    assert len(first.leases) == len(second.leases) == PAGE


def test_the_summary_of_leases_reads_only_leases(url: str) -> None:
    summary = assert_reads(url, leases.summary(), most=OF_EACH + 20, index="jobs_leased")

    assert summary.leases == OF_EACH


def test_workers_are_read_with_the_leases_they_hold_and_nothing_else(url: str) -> None:
    seen = assert_reads(url, workers.registry(), most=OF_EACH + 20, index="jobs_leased")
    known = assert_reads(url, workers.registrations(), most=20, index="workers_pkey")

    assert len(seen) == len(known) == 10


def test_a_page_of_refusals_is_read_from_the_end_of_the_primary_key(url: str) -> None:
    most = 2 * (PAGE + 1) + 5  # with the job of each
    first = assert_reads(url, rejections.page(limit=PAGE), most=most, index="rejections_pkey")
    assert_reads(
        url,
        rejections.page(limit=PAGE, before=int(first.next)),
        most=most,
        index="rejections_pkey",
    )


def test_refusals_are_counted_up_to_a_bound(url: str) -> None:
    most = rejections.COUNTED_UP_TO + 5
    assert_reads(url, rejections.count(recent_seconds=600), most=most, index="rejections_pkey")


def test_latency_is_computed_from_the_newest_jobs(url: str) -> None:
    most = 2 * statistics.SAMPLED_JOBS + 5
    latency = assert_reads(url, statistics.latency(), most=most, index="ledger_pkey")

    assert latency.jobs == statistics.SAMPLED_JOBS


def test_throughput_reads_no_table_at_all(url: str) -> None:
    assert_reads(url, statistics.ledger_sample(), most=0, index=None)


def test_one_job_is_found_by_its_id_and_by_its_key(url: str) -> None:
    found = assert_reads(url, jobs.job_by_key("key-77"), most=3, index="jobs_idempotency_key")
    job_id: UUID = found.id
    for statement, index in (
        (jobs.details_of(job_id), "jobs_pkey"),
        (jobs.progress_of(job_id), "jobs_pkey"),
        (jobs.attempts_of(job_id, limit=1000), "attempts_log_job"),
        (jobs.rejections_of(job_id, limit=1000), "rejections_job"),
        (jobs.ledger_entry_of(job_id), None),
    ):
        assert assert_reads(url, statement, most=5, index=index)
