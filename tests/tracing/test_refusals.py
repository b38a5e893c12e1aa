"""The trace shows a refused commit with its reason and tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psycopg
import pytest
from opentelemetry.trace import StatusCode

from faultline import Faultline, Job, StaleLease
from faultline.workers.attempt import AttemptAborted
from tests.running import Connection, count, rejections, take_over, working
from tests.tracing.recorded import Recorded, attributes, event, parent_id, span_id
from tests.waiting import wait_until

WRITE = "INSERT INTO effects VALUES ('written')"
TAKEN_OVER = {
    "faultline.reason": "token_mismatch",
    "faultline.stale_token": 1,
    "faultline.current_token": 2,
}
Handler = Callable[[Faultline, Connection, str], None]


def returns_late(app: Faultline, conn: Connection, url: str) -> None:
    @app.task(name="handler")
    async def handler(job: Job) -> None:
        take_over(conn, job.id)


def returns_late_in_a_thread(app: Faultline, conn: Connection, url: str) -> None:
    @app.task(name="handler")
    def handler(job: Job) -> None:
        take_over(conn, job.id)


def enters_its_own_transaction_late(app: Faultline, conn: Connection, url: str) -> None:
    @app.task(name="handler")
    async def handler(job: Job) -> None:
        take_over(conn, job.id)
        async with await psycopg.AsyncConnection.connect(url) as own:
            await own.execute(WRITE)
            await job.commit(own)


def enters_its_own_transaction_late_in_a_thread(app: Faultline, conn: Connection, url: str) -> None:
    @app.task(name="handler")
    def handler(job: Job) -> None:
        take_over(conn, job.id)
        with psycopg.connect(url) as own:
            own.execute(WRITE)
            job.commit(own)


@pytest.mark.parametrize(
    ("register", "how"),
    [
        (returns_late, "batch"),
        (returns_late_in_a_thread, "batch"),
        (enters_its_own_transaction_late, "entry"),
        (enters_its_own_transaction_late_in_a_thread, "entry"),
    ],
)
def test_a_commit_after_a_takeover_is_a_failed_span_with_both_tokens(
    app: Faultline,
    recorded: Recorded,
    conn: Connection,
    database_url: str,
    effects: str,
    register: Handler,
    how: str,
) -> None:
    register(app, conn, database_url)
    job_id = app.find_task("handler").enqueue().job_id
    with working(app, self_fencing=False, lease_seconds=60.0):
        execute, commit = recorded.one("execute default"), recorded.one("commit default")
    assert rejections(conn, job_id) == [(1, 2, "token_mismatch")]
    assert count(conn, effects) == 0

    found = attributes(commit)
    assert TAKEN_OVER.items() <= found.items()
    assert found["faultline.commit"] == how
    assert found["error.type"] == "stale_lease"
    assert commit.status.status_code is StatusCode.ERROR
    assert commit.status.description == "stale lease: token_mismatch"
    assert parent_id(commit) == span_id(execute)

    refusal = event(execute, "stale_write_blocked")
    assert TAKEN_OVER.items() <= refusal.items()
    assert refusal["faultline.overlap_seconds"] >= 0
    assert attributes(execute)["faultline.outcome"] == "stale"
    assert execute.status.status_code is StatusCode.ERROR


def test_a_fence_that_does_not_hold_any_more_is_on_record_before_any_commit(
    app: Faultline, recorded: Recorded, conn: Connection, effects: str
) -> None:
    @app.task()
    async def late(job: Job) -> None:
        take_over(conn, job.id)
        async with job.transaction() as tx:
            await tx.execute(WRITE)

    late.enqueue()
    with working(app, self_fencing=False, lease_seconds=60.0):
        execute = recorded.one("execute default")
    assert TAKEN_OVER.items() <= event(execute, "stale_write_blocked").items()
    assert recorded.named("commit default") == []  # it did not come to that
    assert count(conn, effects) == 0


def test_a_lease_that_ran_out_inside_the_transaction_is_seen_at_its_commit(
    app: Faultline, recorded: Recorded, conn: Connection, effects: str
) -> None:
    @app.task(max_attempts=1)
    def late(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute(WRITE)
            tx.execute(
                "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() WHERE id = %s",
                [job.id],
            )

    late.enqueue()
    with working(app, self_fencing=False, lease_seconds=60.0):
        execute, commit = recorded.one("execute default"), recorded.one("commit default")
    found = attributes(commit)
    assert (found["faultline.reason"], found["faultline.stale_token"]) == ("lease_expired", 1)
    assert commit.status.description == "stale lease: lease_expired"
    assert attributes(execute)["faultline.outcome"] == "stale"
    assert count(conn, effects) == 0


def test_a_handler_that_will_not_end_is_still_seen_when_its_late_commit_is_refused(
    app: Faultline, recorded: Recorded, conn: Connection, database_url: str, effects: str
) -> None:
    """The attempt's span is already exported; the late commit still belongs to it."""
    settled: list[bool] = []

    # Time enough to get to where it will not be interrupted.
    @app.task(max_attempts=1, timeout=1.0)
    def zombie(job: Job) -> None:
        while True:
            with contextlib.suppress(AttemptAborted):  # it will not be interrupted
                wait_until(lambda: settled, "the end of the attempt")
                break
        with contextlib.suppress(StaleLease), psycopg.connect(database_url) as own:
            own.execute(WRITE)
            job.commit(own)

    zombie.enqueue()
    with working(app, drain_seconds=0.1):
        execute = recorded.one("execute default")
        assert attributes(execute)["error.type"] == "attempt_timeout"
        settled.append(True)
        commit = recorded.one("commit default")
    assert attributes(commit)["faultline.reason"] == "not_running"
    assert commit.status.status_code is StatusCode.ERROR
    assert parent_id(commit) == span_id(execute)
    assert count(conn, effects) == 0
