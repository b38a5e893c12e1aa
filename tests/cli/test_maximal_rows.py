"""Workers, commands and dumps handle rows at the size limits."""

from __future__ import annotations

import contextlib
from uuid import UUID

import psycopg
import pytest

from faultline import Faultline as App
from faultline import Job
from faultline.testing import Outcome, run_until_idle
from faultline_drills.cluster.programs import missing_requirement, run_program

from .conftest import Connection, Faultline

# 63 numbers of 131,001 digits each, in less than a kilobyte of storage: 8.25 of 8.39 MB as text.
NUMBERS = f"[{', '.join(['1e131000'] * 63)}]"
HUGE = f"[{', '.join(['1e131000'] * 9000)}]"
NAME, WIDE = "n" * 200, "ä" * 20_000


DEEP = "[" * 2000 + "]" * 2000


def fill(conn: Connection) -> list[UUID]:
    """A job of every kind of end, with as much in every column as the verbs let in."""
    with contextlib.suppress(psycopg.errors.CheckViolation):  # 1.2 GB as text
        conn.execute("SELECT faultline.enqueue('huge', %s::jsonb)", [f'{{"a": {HUGE}}}'])
    for value in (NUMBERS, NUMBERS, NUMBERS, DEEP):
        conn.execute(
            "SELECT faultline.enqueue(%s, %s::jsonb, queue => %s, trace_context => %s)",
            [NAME, f'{{"a": {value}}}', "q" * 63, "t" * 1000],
        )
    conn.execute(
        "SELECT faultline.register_worker(%s, %s, 1, %s, false)", [NAME, WIDE, ["q" * 63] * 100]
    )
    call = "SELECT job_id, fencing_token, lease_id FROM faultline.claim(%s, %s, 2)"
    committed, failed = conn.execute(call, [NAME, ["q" * 63]]).fetchall()
    commit = "SELECT faultline.commit(%s, %s, %s, %s::jsonb)"
    try:
        conn.execute(commit, [*committed, HUGE])
    except psycopg.errors.CheckViolation:
        conn.execute(commit, [*committed, NUMBERS])
    conn.execute("SELECT faultline.fail(%s, %s, %s, %s, reason => %s)", [*failed, WIDE, "r" * 100])
    conn.execute(
        "SELECT faultline.record_rejection(%s, 1, %s, %s)", [failed[0], "w" * 10_000, WIDE]
    )
    conn.execute("SELECT faultline.pause_queue('other', %s)", [WIDE])
    return [row[0] for row in conn.execute("SELECT id FROM faultline.jobs ORDER BY id")]


@pytest.mark.slow
def test_commands_show_rows_at_their_limits(faultline: Faultline, conn: Connection) -> None:
    for job_id in fill(conn):
        assert faultline("jobs", "show", str(job_id)).code == 0
        assert faultline("jobs", "show", str(job_id), "--json").code == 0
        assert faultline("why", str(job_id)).code == 0
    assert faultline("verify").code == 0


@pytest.mark.slow
@pytest.mark.skipif(missing_requirement() is not None, reason=str(missing_requirement()))
def test_rows_at_their_limits_are_dumped_and_restored(
    conn: Connection, database_url: str, empty_database_url: str
) -> None:
    fill(conn)
    version = str(conn.info.server_version // 10_000)
    dump = run_program("pg_dump", url=database_url, version=version)
    options = ("--quiet", "--set", "ON_ERROR_STOP=1")
    run_program("psql", *options, url=empty_database_url, version=version, reads=dump)
    again = run_program("pg_dump", url=empty_database_url, version=version)
    assert len(again) == len(dump)


def test_a_worker_fails_jobs_that_python_cannot_decode_and_continues(
    database_url: str, conn: Connection
) -> None:
    app = App(database_url)
    seen: list[int] = []

    @app.task(name="show")
    def show(job: Job, a: int) -> None:
        seen.append(a)

    unreadable = [
        conn.execute(
            "SELECT job_id FROM faultline.enqueue('show', %s::jsonb)", [f'{{"a": {value}}}']
        ).fetchall()[0][0]
        for value in (NUMBERS, DEEP)
    ]
    show.enqueue(a=1)
    outcomes = [attempted.outcome for attempted in run_until_idle(app, raise_errors=False)]
    assert outcomes.count(Outcome.SUCCEEDED) == 1
    assert seen == [1]
    for job_id in unreadable:
        record = app.get(job_id)
        assert "cannot be read by Python" in (record.last_error or "")
