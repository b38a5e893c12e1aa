"""Progress that handlers report in child processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from faultline import Faultline, JobState
from tests.children import jobs
from tests.running import Connection, count, ended, work_off, working
from tests.waiting import wait_until


@pytest.fixture
def app(
    database_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Faultline]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    conn.execute("CREATE TABLE effects (job_id uuid, amount int)")
    yield jobs.app
    jobs.app.close()


def shown(app: Faultline, job_id: Any) -> tuple[float, str | None] | None:
    progress = app.get(job_id).progress
    return None if progress is None else (progress.fraction, progress.message)


def test_the_newest_report_of_a_child_is_visible_while_it_runs(
    app: Faultline, conn: Connection, database_url: str
) -> None:
    job_id = jobs.reports.enqueue(ends="waits").job_id
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE effects")
        with working(app):
            wait_until(lambda: shown(app, job_id) == (0.5, "half"), "the newest report")
            holder.rollback()
            assert ended(app, job_id).state is JobState.SUCCEEDED


def test_the_last_report_before_a_childs_failure_arrives(app: Faultline) -> None:
    job_id = jobs.reports.enqueue(ends="fails").job_id
    assert work_off(app, job_id).state is JobState.FAILED
    assert shown(app, job_id) == (0.5, "half")


def test_a_thread_that_outlives_its_job_does_not_report_for_the_next_job(
    app: Faultline, conn: Connection
) -> None:
    first = jobs.reports_late.enqueue(first=True).job_id
    second = jobs.reports_late.enqueue(first=False).job_id
    with working(app, concurrency=1):
        assert ended(app, first).state is JobState.SUCCEEDED
        assert "so that the last report" in (ended(app, second).last_error or "")
    assert count(conn, "faultline.job_progress") == 0
