"""job.progress: reports are visible at once, fenced, and never disturb the job."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from faultline import Faultline, InvalidInput, Job, JobState, ReportedProgress, Snooze
from tests.running import Connection, count, ended, take_over, value, work_off, working
from tests.waiting import wait_until

KINDS = ["async", "plain"]


class Gate:
    """Handlers wait here until the test lets them go on."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def is_open_soon(self) -> bool:
        return self._open.wait(0.005)

    def wait(self) -> None:
        assert self._open.wait(60)

    async def wait_async(self) -> None:
        await asyncio.to_thread(self.wait)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def shown(app: Faultline, job_id: Any) -> tuple[float, str | None] | None:
    progress = app.get(job_id).progress
    return None if progress is None else (round(progress.fraction, 3), progress.message)


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_visible_while_the_handlers_transaction_is_open(
    app: Faultline, conn: Connection, effects: str, gate: Gate, kind: str
) -> None:
    @app.task(name="plain")
    def in_thread(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES ('written')")
            job.progress(0.4, "4 of 10")
            gate.wait()

    @app.task(name="async")
    async def on_loop(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ('written')")
            job.progress(0.4, "4 of 10")
            await gate.wait_async()

    job_id = app.find_task(kind).enqueue().job_id
    with working(app):
        wait_until(lambda: shown(app, job_id) == (0.4, "4 of 10"), "the report")
        assert count(conn, "effects") == 0
        gate.open()
        assert ended(app, job_id).state is JobState.SUCCEEDED
    assert app.get(job_id).progress is None  # it has succeeded, which says more


def test_a_job_that_reports_all_the_time_is_written_once_a_second(
    app: Faultline, conn: Connection, gate: Gate
) -> None:
    conn.execute("CREATE TABLE written (at timestamptz)")
    conn.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO public.written VALUES (clock_timestamp()); RETURN NULL; END'"
    )
    conn.execute(
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON faultline.job_progress"
        " FOR EACH ROW EXECUTE FUNCTION note()"
    )

    @app.task()
    def busy(job: Job) -> None:
        while not gate.is_open_soon():
            for number in range(100):
                job.progress(number / 100)
        raise Snooze(600)

    job_id = busy.enqueue().job_id
    with working(app):
        wait_until(lambda: count(conn, "written") >= 3, "some reports")
        gaps = (
            "SELECT min(gap) FROM (SELECT at - lag(at) OVER (ORDER BY at) AS gap FROM written) AS g"
        )
        assert value(conn, gaps).total_seconds() >= 0.9
        gate.open()
        wait_until(lambda: app.get(job_id).state is JobState.QUEUED, "the snooze")


def test_a_report_arrives_although_the_one_before_was_sent_while_it_was_noted(
    app: Faultline, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call for the first report returns only after the loop has sent it."""
    reporting: list[threading.Thread] = []

    @app.task()
    def reports(job: Job) -> None:
        reporting.append(threading.current_thread())
        job.progress(0.1)
        reporting.clear()
        job.progress(0.2)
        gate.wait()

    with working(app) as running:
        loop = running.loop
        assert loop is not None
        wake = loop.call_soon_threadsafe

        def wake_and_wait(*call: Any, **options: Any) -> Any:
            handle = wake(*call, **options)
            if threading.current_thread() in reporting:
                wait_until(lambda: shown(app, job_id) == (0.1, None), "the first report")
            return handle

        monkeypatch.setattr(loop, "call_soon_threadsafe", wake_and_wait)
        job_id = reports.enqueue().job_id
        wait_until(lambda: shown(app, job_id) == (0.2, None), "the second report")
        gate.open()


def test_a_report_that_found_its_job_locked_is_sent_again(
    app: Faultline, conn: Connection, database_url: str, gate: Gate
) -> None:
    may_report = threading.Event()

    @app.task()
    def reports(job: Job) -> None:
        assert may_report.wait(60)
        job.progress(0.5)
        gate.wait()

    job_id = reports.enqueue().job_id
    was_sent = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'faultline progress' AND state = 'idle'"
        " AND query ~ 'report_progress'"
    )
    with working(app), psycopg.connect(database_url) as locker:
        wait_until(lambda: app.get(job_id).state is JobState.RUNNING, "the claim")
        locker.execute("SELECT FROM faultline.jobs FOR UPDATE")
        may_report.set()
        wait_until(lambda: value(conn, was_sent) == 1, "the report that was left out")
        assert shown(app, job_id) is None
        locker.rollback()
        wait_until(lambda: shown(app, job_id) == (0.5, None), "the report")
        gate.open()


def test_the_last_report_before_a_failure_arrives(app: Faultline) -> None:
    @app.task(max_attempts=1)
    def breaks(job: Job) -> None:
        job.progress(0.1)
        job.progress(0.7, "7 of 10")
        raise ValueError("broken")

    job_id = breaks.enqueue().job_id
    record = work_off(app, job_id)
    assert record.state is JobState.FAILED
    assert shown(app, job_id) == (0.7, "7 of 10")


def test_the_last_report_before_a_snooze_is_shown_until_the_next_claim(
    app: Faultline, conn: Connection
) -> None:
    @app.task()
    async def waits(job: Job) -> None:
        job.progress(0.3, "the bank is closed")
        raise Snooze(600)

    job_id = waits.enqueue().job_id
    with working(app):
        wait_until(lambda: shown(app, job_id), "the report")
        wait_until(lambda: app.get(job_id).state is JobState.QUEUED, "the snooze")
    assert shown(app, job_id) == (0.3, "the bank is closed")
    conn.execute("UPDATE faultline.jobs SET next_run_at = clock_timestamp()")
    conn.execute("SELECT FROM faultline.claim('next')")
    assert shown(app, job_id) is None


@pytest.mark.parametrize("self_fencing", [True, False])
def test_a_stale_handler_reports_in_vain_and_no_error_reaches_it(
    app: Faultline, conn: Connection, gate: Gate, self_fencing: bool
) -> None:
    errors: list[BaseException] = []
    reported = threading.Event()

    @app.task()
    def late(job: Job) -> None:
        take_over(conn, job.id)
        try:
            job.progress(0.9, "from the past")
        except BaseException as error:
            errors.append(error)
        reported.set()
        raise ValueError("so that the last report is sent")

    job_id = late.enqueue().job_id
    with working(app, self_fencing=self_fencing):
        assert reported.wait(60)
        wait_until(lambda: count(conn, "faultline.rejections"), "the refused failure")
    assert errors == []
    assert count(conn, "faultline.job_progress") == 0
    assert shown(app, job_id) is None


@pytest.mark.parametrize("fraction", [-0.001, 1.001, math.nan, math.inf, True, "0.5", None])
def test_an_invalid_fraction_is_refused(app: Faultline, conn: Connection, fraction: Any) -> None:
    refused: list[str] = []

    @app.task()
    def wrong(job: Job) -> None:
        with pytest.raises(InvalidInput, match="a fraction from 0 to 1") as error:
            job.progress(fraction)
        refused.append(error.value.code)

    assert work_off(app, wrong.enqueue().job_id).state is JobState.SUCCEEDED
    assert refused == ["invalid_input"]


def test_messages_that_postgresql_cannot_store_are_changed(app: Faultline, gate: Gate) -> None:
    @app.task()
    def odd(job: Job) -> None:
        job.progress(0.5, "nul \x00 half \ud800 " + "x" * 1000)
        gate.wait()

    job_id = odd.enqueue().job_id
    with working(app):
        progress = wait_until(lambda: app.get(job_id).progress, "the report")
        gate.open()
    assert isinstance(progress, ReportedProgress)
    assert progress.message is not None
    assert progress.message.startswith("nul \ufffd half ? x")
    assert len(progress.message) == 500


def test_a_database_that_refuses_reports_does_not_disturb_the_job(
    app: Faultline, conn: Connection
) -> None:
    conn.execute("ALTER TABLE faultline.job_progress ADD CONSTRAINT none CHECK (fraction < 0)")

    @app.task()
    def reports(job: Job) -> str:
        job.progress(0.5)
        return "done"

    @app.task(max_attempts=1)
    def fails(job: Job) -> None:
        job.progress(0.5)
        raise ValueError("broken")

    assert work_off(app, reports.enqueue().job_id).result == "done"
    assert "ValueError: broken" in (work_off(app, fails.enqueue().job_id).last_error or "")


def test_jobs_without_reports_open_no_session_for_them(app: Faultline, conn: Connection) -> None:
    seen: list[int] = []

    @app.task()
    def silent(job: Job) -> None:
        open_ = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'faultline progress'"
        )
        seen.append(value(conn, open_))

    work_off(app, silent.enqueue().job_id)
    assert seen == [0]
    assert count(conn, "faultline.job_progress") == 0
