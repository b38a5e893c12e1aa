"""A retry has a trace of its own, linked to the enqueue."""

from __future__ import annotations

import asyncio

from opentelemetry.trace import StatusCode

from faultline import Faultline, Job, JobState, Reject, RetryPolicy
from tests.running import Connection, ended, value, work_off, working
from tests.tracing.recorded import (
    Recorded,
    attributes,
    event,
    links,
    parent_id,
    span_id,
    trace_id,
)
from tests.waiting import wait_until

SOON = RetryPolicy(base_seconds=0.01, cap_seconds=0.01)


def test_a_retry_is_linked_to_the_enqueue_and_to_its_own_claim(
    app: Faultline, recorded: Recorded
) -> None:
    @app.task(retry=SOON)
    async def fails_once(job: Job) -> None:
        if job.attempt == 1:
            raise LookupError("not yet")

    record = work_off(app, fails_once.enqueue().job_id)
    assert record.state is JobState.SUCCEEDED

    first, retry = recorded.wait_for("execute default", 2)
    enqueue = recorded.one("enqueue default")
    claims = {span_id(span) for span in recorded.wait_for("claim default", 2)}
    assert parent_id(first) == span_id(enqueue)
    assert parent_id(retry) is None
    assert trace_id(retry) != trace_id(first)
    assert links(retry)["enqueue"] == span_id(enqueue)
    assert {links(first)["claim"], links(retry)["claim"]} == claims

    assert (attributes(first)["faultline.attempt"], attributes(retry)["faultline.attempt"]) == (
        1,
        2,
    )
    assert (attributes(first)["faultline.token"], attributes(retry)["faultline.token"]) == (1, 2)
    assert attributes(first)["faultline.outcome"] == "failed"
    assert attributes(first)["error.type"] == "LookupError"
    assert first.status.status_code is StatusCode.ERROR
    assert event(first, "job_retry_scheduled")["faultline.retry_in_seconds"] >= 0
    assert attributes(retry)["faultline.outcome"] == "succeeded"
    assert retry.status.status_code is StatusCode.UNSET


def test_a_retry_is_no_takeover(app: Faultline, recorded: Recorded) -> None:
    @app.task(retry=SOON)
    async def fails_once(job: Job) -> None:
        if job.attempt == 1:
            raise LookupError

    work_off(app, fails_once.enqueue().job_id)
    for execute in recorded.wait_for("execute default", 2):
        assert "faultline.takeover" not in attributes(execute)


def test_the_span_of_a_dead_job_has_the_reason(app: Faultline, recorded: Recorded) -> None:
    @app.task(max_attempts=5)
    async def of_no_use(job: Job) -> None:
        raise Reject("never")

    work_off(app, of_no_use.enqueue().job_id)
    execute = recorded.one("execute default")
    assert event(execute, "job_dead") == {"faultline.reason": "rejected"}
    assert attributes(execute)["error.type"] == "rejected"


def test_a_job_of_an_unknown_task_has_an_attempt_too(
    app: Faultline, recorded: Recorded, conn: Connection
) -> None:
    conn.execute("SELECT faultline.enqueue('unheard_of', max_attempts => 1)")
    with working(app):
        execute = recorded.one("execute default")
    assert attributes(execute)["error.type"] == "unknown_task"


def test_a_job_that_is_handed_back_is_no_error(app: Faultline, recorded: Recorded) -> None:
    begun = asyncio.Event()

    @app.task()
    async def waits(job: Job) -> None:
        begun.set()
        if job.token == 1:
            await asyncio.Event().wait()

    job_id = waits.enqueue().job_id
    with working(app, drain_seconds=0.01):
        wait_until(begun.is_set, "the handler")
    released = recorded.one("execute default")
    assert attributes(released)["faultline.outcome"] == "released"
    assert released.status.status_code is StatusCode.UNSET
    assert event(released, "job_released") == {}

    with working(app):
        ended(app, job_id)
    _, again = recorded.wait_for("execute default", 2)
    assert attributes(again)["faultline.attempt"] == 1  # a release costs no attempt
    assert parent_id(again) == span_id(recorded.one("enqueue default"))


def test_the_span_of_an_attempt_that_lost_its_lease_is_marked(
    app: Faultline, recorded: Recorded, conn: Connection
) -> None:
    begun = asyncio.Event()

    @app.task(max_attempts=1)
    async def waits(job: Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    job_id = waits.enqueue().job_id
    with working(app, lease_seconds=60.0, heartbeat_seconds=0.1):  # lost by word, not by time
        wait_until(begun.is_set, "the handler")
        app.cancel(job_id)
        execute = recorded.one("execute default")
    assert value(conn, "SELECT count(*) FROM faultline.ledger") == 0
    assert "faultline.cause" in event(execute, "lease_lost")
    assert attributes(execute)["faultline.outcome"] == "stale"
    assert attributes(execute)["error.type"] == "stale_lease"
