"""`advance` makes scheduled jobs and retries due, and expires leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from faultline import Faultline, InvalidInput, Job, JobState, Rate, RetryPolicy, Unique
from faultline.testing import Outcome, advance, run_one, run_until_idle


def test_a_retry_is_due_after_its_backoff(app: Faultline) -> None:
    @app.task(name="flaky", retry=RetryPolicy(base_seconds=600, cap_seconds=600, jitter=0))
    def flaky(job: Job) -> int:
        if job.attempt == 1:
            raise ConnectionError
        return job.attempt

    enqueued = flaky.enqueue()
    assert run_until_idle(app, raise_errors=False)[0].outcome is Outcome.RETRYING
    advance(app, 500)
    assert run_until_idle(app) == []
    advance(app, 100)
    assert run_until_idle(app)[0].outcome is Outcome.SUCCEEDED
    assert app.get(enqueued.job_id).result == 2


def test_a_scheduled_job_becomes_due(app: Faultline) -> None:
    @app.task(name="later")
    def later(job: Job) -> None:
        return None

    later.options(run_at=datetime.now(UTC) + timedelta(days=1)).enqueue()
    advance(app, timedelta(hours=23))
    assert run_one(app) is None
    advance(app, timedelta(hours=1))
    assert run_one(app) is not None


def test_a_job_that_waits_for_its_rate_starts_when_the_rate_allows_it(app: Faultline) -> None:
    @app.task(name="slow", rate=Rate(1, per=3600))
    def slow(job: Job) -> None:
        return None

    slow.enqueue_many([{}, {}])
    assert len(run_until_idle(app)) == 1
    advance(app, timedelta(minutes=59))
    assert run_until_idle(app) == []
    advance(app, timedelta(minutes=1))
    assert len(run_until_idle(app)) == 1


def test_the_lease_of_a_silent_worker_expires(app: Faultline) -> None:
    @app.task(name="noop")
    def noop(job: Job) -> None:
        return None

    enqueued = noop.enqueue()
    with psycopg.connect(app.database_url) as conn:
        conn.execute("SELECT faultline.claim('silent', '{default}', 1, '1 hour')")
    advance(app, timedelta(minutes=59))  # one minute remains, since real time passes too
    assert run_one(app) is None
    assert app.get(enqueued.job_id).state is JobState.RUNNING
    advance(app, timedelta(minutes=1))
    attempted = run_one(app)
    assert attempted is not None
    assert (attempted.token, attempted.outcome) == (2, Outcome.SUCCEEDED)


def test_time_cannot_be_moved_back(app: Faultline) -> None:
    with pytest.raises(InvalidInput, match="must not be negative"):
        advance(app, -1)


def test_advance_changes_only_test_databases(database_url: str) -> None:
    with pytest.raises(InvalidInput, match="not changed"):
        advance(Faultline(database_url), 1)


def test_the_window_of_a_unique_job_ends(app: Faultline) -> None:
    @app.task(name="report", unique=Unique(for_=3600))
    def report(job: Job) -> None: ...

    report.enqueue()
    run_until_idle(app)
    advance(app, 3500)
    assert report.enqueue().existing
    advance(app, 100)
    assert not report.enqueue().existing
