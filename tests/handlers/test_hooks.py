"""Hooks around attempts: where they run, and what their errors do."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job, JobState
from tests.running import Connection, EventTap, ended, working


@pytest.mark.parametrize("has_hook", [True, False])
def test_a_hook_replaces_a_connection_that_the_server_ended_between_two_jobs(
    app: Faultline, conn: Connection, effects: str, has_hook: bool
) -> None:
    """As an ORM does: one connection for each thread, opened once."""
    own = threading.local()
    opened: list[psycopg.Connection[Any]] = []

    def connection() -> psycopg.Connection[Any]:
        if not hasattr(own, "conn"):
            own.conn = psycopg.connect(app.database_url, autocommit=True)
            opened.append(own.conn)
        found: psycopg.Connection[Any] = own.conn
        return found

    def close_if_lost(job: Job) -> None:
        try:
            connection().execute("SELECT 1")
        except psycopg.OperationalError:
            del own.conn

    if has_hook:
        app.before_attempt(close_if_lost)

    @app.task(max_attempts=1)
    def write(job: Job) -> int:
        connection().execute("INSERT INTO effects VALUES (%s)", [str(job.id)])
        return connection().info.backend_pid

    with working(app, concurrency=1):  # one slot, so one thread
        first = ended(app, write.enqueue().job_id)
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [first.result])
        second = ended(app, write.enqueue().job_id)
    for each in opened:
        each.close()
    assert second.state is (JobState.SUCCEEDED if has_hook else JobState.FAILED), second.last_error


def test_hooks_run_where_the_handler_runs_and_only_an_error_before_it_counts(
    app: Faultline, events: EventTap
) -> None:
    seen: list[tuple[str, str, str]] = []

    def note(what: str, job: Job) -> None:
        seen.append((job.task, what, threading.current_thread().name))

    @app.before_attempt
    def begin(job: Job) -> None:
        note("before", job)
        if job.task == "refused":
            raise ValueError("not today")

    @app.before_attempt
    async def begin_async(job: Job) -> None:
        note("before, async", job)

    @app.after_attempt
    def end(job: Job) -> None:
        note("after", job)
        raise SystemExit("too late")

    @app.task(name="plain", max_attempts=1)
    def plain(job: Job) -> str:
        note("handler", job)
        return "plain"

    @app.task(name="waiting", max_attempts=1)
    async def waiting(job: Job) -> str:
        note("handler", job)
        return "waiting"

    @app.task(name="refused", max_attempts=1)
    def refused(job: Job) -> None:
        note("handler", job)

    with working(app):
        records = {
            task.name: ended(app, task.enqueue().job_id) for task in (plain, waiting, refused)
        }
    assert (records["plain"].result, records["waiting"].result) == ("plain", "waiting")
    assert records["refused"].state is JobState.FAILED
    assert "ValueError: not today" in str(records["refused"].last_error)

    def steps(task: str) -> list[str]:
        return [what for name, what, _ in seen if name == task]

    assert steps("plain") == ["before", "handler", "after"]
    assert steps("waiting") == ["before", "before, async", "handler", "after"]
    assert steps("refused") == ["before", "after"]
    for name in ("plain", "waiting"):
        assert len({thread for task, _, thread in seen if task == name}) == 1
    assert len([event for event in events.of("degraded") if "hook failed" in event["reason"]]) == 3
