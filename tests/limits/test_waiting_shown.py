"""A waiting job is shown as waiting since it was due, and not as scheduled."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from faultline import timeline
from faultline.postgres.sessions import run, run_reads
from faultline.statements import clock, job_pages, jobs, limit_keys, waiting
from faultline.statements.job_filter import JobFilter
from tests.protocol.steps import Connection, rows

from .steps import claim_all, enqueue, limit_customers, set_limit


@pytest.fixture
def wait(conn: Connection) -> UUID:
    """The second of two jobs of a task of which one may run; the first runs."""
    set_limit(conn, "task:charge", 1)
    ids = enqueue(conn, [{}, {}])
    claim_all(conn)
    return ids[1]


def was_due(conn: Connection, moment: datetime) -> bool:
    return timedelta(0) <= run(conn, clock.database_time()) - moment < timedelta(hours=1)


def counts(conn: Connection, exact_up_to: int = 10) -> dict[str, tuple[int, bool]]:
    query = "SELECT standing, at_least, is_exact FROM faultline.queues(%s) WHERE queue = 'default'"
    return {row[0]: tuple(row[1:]) for row in rows(conn, query, exact_up_to)}


def test_every_reader_of_a_job_gets_its_due_time_and_its_limit(
    conn: Connection, wait: UUID
) -> None:
    found: list[Any] = [run(conn, jobs.get_job(wait)), run(conn, jobs.details_of(wait))]
    found += run(conn, jobs.records_of([wait]))
    found += run(conn, job_pages.page(JobFilter(ids=(wait,)), limit=1)).jobs
    for shown in found:
        assert shown.waits_for == "task:charge"
        assert was_due(conn, shown.next_run_at)
    for document in (
        run(conn, jobs.job_json(wait)),
        *run(conn, jobs.documents_of([wait])),
        run(conn, jobs.job_json_page(JobFilter(), limit=1, scan=10)).jobs[0],
    ):
        assert document is not None
        assert document["waits_for"] == "task:charge"
        assert was_due(conn, document["next_run_at"])


def test_a_job_that_does_not_wait_has_no_limit_to_wait_for(conn: Connection, wait: UUID) -> None:
    [running] = [
        job for job in run(conn, job_pages.page(JobFilter(), limit=2)).jobs if job.id != wait
    ]
    assert running.waits_for is None
    conn.execute("SELECT faultline.cancel(%s)", [wait])
    cancelled = run(conn, jobs.get_job(wait))
    assert cancelled is not None
    assert cancelled.waits_for is None


def test_the_timeline_of_a_waiting_job_ends_with_its_limit(conn: Connection, wait: UUID) -> None:
    history = run_reads(conn, timeline.history_of(wait))
    assert history is not None
    [event] = timeline.upcoming(history.job)
    assert event.text == "due, and waits for the limit task:charge"
    assert was_due(conn, event.at)


def test_a_search_of_queued_jobs_has_come_to_the_time_at_which_they_were_due(
    conn: Connection, wait: UUID
) -> None:
    wanted = JobFilter(state=jobs.JobState.QUEUED, task="other")
    page = run(conn, job_pages.page(wanted, limit=1, max_examined=1))
    assert page.last_at is not None
    assert was_due(conn, page.last_at)


# ── counts ───────────────────────────────────────────────────────────────────────────────────────


def test_waiting_jobs_are_counted_as_waiting_and_not_as_scheduled(conn: Connection) -> None:
    set_limit(conn, "task:charge", 1)
    enqueue(conn, [{}] * 6)
    enqueue(conn, [{}] * 2, run_at="2999-01-01")
    enqueue(conn, [{}], run_at="9999-01-01")
    claim_all(conn)
    enqueue(conn, [{}] * 4, task="mail")
    found = counts(conn)
    assert found["due"] == (4, True)
    assert found["waiting"] == (5, True)
    assert found["scheduled"] == (3, True)
    assert found["running"] == (1, True)


def test_the_oldest_waiting_job_is_counted_from_when_it_was_due(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    [old] = enqueue(conn, [{}], run_at="2020-01-01")
    enqueue(conn, [{}])
    claim_all(conn)
    query = "SELECT since FROM faultline.queues() WHERE queue = 'default' AND standing = %s"
    [(since,)] = rows(conn, query, "waiting")
    assert since.year == 2020
    assert rows(conn, query, "scheduled") == [(None,)]
    assert run(conn, jobs.get_job(old)).next_run_at.year == 2020  # type: ignore[union-attr]


def test_the_bound_of_waiting_jobs_is_ten_times_that_of_others(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    enqueue(conn, [{}] * 10)
    enqueue(conn, [{}] * 2, run_at="2999-01-01")
    while claim_all(conn):
        pass
    assert counts(conn, 1)["waiting"] == (10, True)
    assert counts(conn, 1)["scheduled"] == (1, False)
    enqueue(conn, [{}])
    claim_all(conn)
    assert counts(conn, 1)["waiting"] == (11, False)
    assert counts(conn, 1)["scheduled"] == (0, False)  # it is not known which of them wait


def test_estimates_tell_waiting_jobs_from_scheduled_ones(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    enqueue(conn, [{}] * 600)
    enqueue(conn, [{}] * 200, task="mail", run_at="2999-01-01")
    conn.execute("SELECT faultline.claim('w', ARRAY['default'], 500)")
    conn.execute("SELECT faultline.claim('w', ARRAY['default'], 500)")
    assert counts(conn, 100_000)["waiting"] == (600, True)
    conn.execute("ANALYZE faultline.jobs")
    estimate = "SELECT faultline.estimated_jobs('default', %s)"
    [(waits,)] = rows(conn, estimate, "waiting")
    assert waits == pytest.approx(800, rel=0.3)  # 2999 looks like a waiting job to the planner
    conn.execute("UPDATE faultline.jobs SET next_run_at = '2100-01-01' WHERE task = 'mail'")
    conn.execute("ANALYZE faultline.jobs")
    [(waits,)], [(later,)] = rows(conn, estimate, "waiting"), rows(conn, estimate, "scheduled")
    assert waits == pytest.approx(600, rel=0.3)
    assert later == pytest.approx(200, rel=0.3)


# ── what it waits for ────────────────────────────────────────────────────────────────────────────


def test_a_wait_names_the_places_of_its_key_and_the_jobs_before_it(conn: Connection) -> None:
    limit_customers(conn, 2)
    ids = enqueue(conn, [{"customer": 42}] * 4 + [{"customer": 7}])
    claim_all(conn)
    found = run(conn, waiting.wait_of(ids[3]))
    assert found is not None
    assert (found.limit_key, found.limit_name) == ("key:customer=42", "key:customer")
    assert (found.taken, found.max_running, found.ahead) == (2, 2, 1)
    assert {place.job_id for place in found.places} == set(ids[:2])
    assert {place.worker for place in found.places} == {"first"}
    assert run(conn, waiting.wait_of(ids[4])) is None


def test_the_fullest_keys_of_a_limit_come_first(conn: Connection) -> None:
    limit_customers(conn, 1)
    set_limit(conn, "key:customers", 1)  # its name begins with the other's
    enqueue(conn, [{"customer": 1}] + [{"customer": "a=b"}] * 3 + [{"customer": 3}] * 2)
    claim_all(conn)
    keys = run(conn, limit_keys.fullest_keys("key:customer"))
    found = [(key.limit_key, key.running, key.waiting) for key in keys]
    assert found == [("key:customer=a=b", 1, 2), ("key:customer=3", 1, 1), ("key:customer=1", 1, 0)]
    assert [key.waits_since is not None for key in keys] == [True, True, False]
    [bound] = run(conn, limit_keys.bound_arguments("key:customer"))
    assert (bound.task, bound.argument, bound.fallback) == ("charge", "customer", None)


def test_a_key_with_room_and_waiting_jobs_that_starts_none_is_idle(conn: Connection) -> None:
    limit_customers(conn, 1)
    set_limit(conn, "task:mail", 0)
    first, *_ = enqueue(conn, [{"customer": 42}] * 3 + [{"customer": 7}] * 2)
    enqueue(conn, [{}] * 2, task="mail")
    claim_all(conn)
    assert run(conn, limit_keys.idle_keys()).by_limit == {}  # full
    conn.execute("DELETE FROM faultline.places WHERE job_id = %s", [first])
    assert run(conn, limit_keys.idle_keys()).by_limit == {"key:customer": 1}
    conn.execute(
        "INSERT INTO faultline.limit_states (limit_key, next_start_at) VALUES ('task:slow', %s)",
        ["2999-01-01"],
    )
    set_limit(conn, "task:slow", rate_jobs=1, rate_seconds=1)
    conn.execute(
        "UPDATE faultline.waiting_jobs SET limit_key = 'task:slow' WHERE queue = 'default'"
    )
    assert run(conn, limit_keys.idle_keys()).by_limit == {}  # the rate allows no start


def test_a_key_that_has_just_started_a_job_is_not_idle(conn: Connection) -> None:
    limit_customers(conn, 2)
    enqueue(conn, [{"customer": 42}] * 5)
    first, _ = claim_all(conn)
    conn.execute("DELETE FROM faultline.places WHERE job_id = %s", [first.job_id])
    assert run(conn, limit_keys.idle_keys()).by_limit == {}
    conn.execute("UPDATE faultline.places SET taken_at = taken_at - interval '1 minute'")
    assert run(conn, limit_keys.idle_keys()).by_limit == {"key:customer": 1}


def test_every_idle_key_is_counted_however_many_keys_are_full(conn: Connection) -> None:
    limit_customers(conn, 1)
    enqueue(conn, [{"customer": customer} for customer in "abcde"] * 2)
    last = claim_all(conn)[-1]
    conn.execute("UPDATE faultline.places SET taken_at = taken_at - interval '1 minute'")
    conn.execute("DELETE FROM faultline.places WHERE job_id = %s", [last.job_id])
    found, after = 0, None
    for _ in range(3):
        page = run(conn, limit_keys.idle_keys(after, page_size=2))
        found, after = found + page.by_limit.get("key:customer", 0), page.last_key
    assert (found, after) == (1, None)


def test_a_key_whose_waiting_jobs_are_all_paused_is_not_idle(conn: Connection) -> None:
    limit_customers(conn, 1)
    first, *_ = enqueue(conn, [{"customer": 42}] * 3)
    claim_all(conn)
    conn.execute("DELETE FROM faultline.places WHERE job_id = %s", [first])
    conn.execute("SELECT faultline.pause_queue('default')")
    assert run(conn, limit_keys.idle_keys()).by_limit == {}
