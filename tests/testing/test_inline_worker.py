"""The inline worker: the real worker, run until no job is due."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from faultline import Faultline, InvalidInput, Job, JobState, Reject, Retry, RetryPolicy, Snooze
from faultline.testing import (
    HandlerFailed,
    NotIdle,
    Outcome,
    ResultDiscarded,
    advance,
    run_one,
    run_one_async,
    run_until_idle,
    run_until_idle_async,
)
from faultline.testing.zombies.database_control import wait_for_first_heartbeat

AT_ONCE = RetryPolicy(base_seconds=0)


def test_run_one_runs_and_commits_one_job(app: Faultline) -> None:
    @app.task(name="double")
    async def double(job: Job, number: int) -> int:
        return number * 2

    first, second = double.enqueue(number=1), double.enqueue(number=2)
    attempted = run_one(app)
    assert attempted is not None
    assert (attempted.job_id, attempted.task, attempted.attempt, attempted.token) == (
        first.job_id,
        "double",
        1,
        1,
    )
    assert (attempted.outcome, attempted.result) == (Outcome.SUCCEEDED, 2)
    assert app.get(first.job_id).state is JobState.SUCCEEDED
    assert app.get(second.job_id).state is JobState.QUEUED


def test_without_a_due_job_nothing_runs(app: Faultline) -> None:
    assert run_one(app) is None
    assert run_until_idle(app) == []


def test_jobs_that_handlers_enqueue_run_too_in_any_queue(app: Faultline) -> None:
    seen: list[str] = []

    @app.task(name="first", queue="one")
    def first(job: Job) -> None:
        seen.append("first")
        second.enqueue()

    @app.task(name="second", queue="two")
    async def second(job: Job) -> None:
        seen.append("second")
        await third.enqueue_async()

    @app.task(name="third")
    def third(job: Job) -> None:
        seen.append("third")

    first.options(queue="queue-of-no-task").enqueue()
    ended = run_until_idle(app)
    assert seen == ["first", "second", "third"]
    assert [attempted.outcome for attempted in ended] == [Outcome.SUCCEEDED] * 3


def test_only_the_named_queues_are_worked(app: Faultline) -> None:
    @app.task(name="noop")
    def noop(job: Job) -> None:
        return None

    noop.options(queue="one").enqueue()
    noop.options(queue="two").enqueue()
    assert len(run_until_idle(app, queues=["two"])) == 1
    assert len(run_until_idle(app)) == 1


def test_the_handlers_exception_is_raised_with_a_note_that_names_the_job(app: Faultline) -> None:
    @app.task(name="break")
    def break_(job: Job) -> None:
        raise ZeroDivisionError("as always")

    enqueued = break_.enqueue()
    with pytest.raises(ZeroDivisionError, match="as always") as raised:
        run_until_idle(app)
    assert raised.traceback[-1].name == "break_"
    (note,) = raised.value.__notes__
    assert note == f"attempt 1 of break ended as retrying (job {enqueued.job_id})"


def test_a_failed_attempt_is_returned_when_errors_are_not_raised(app: Faultline) -> None:
    @app.task(name="break", max_attempts=3, retry=AT_ONCE)
    async def break_(job: Job) -> None:
        raise ZeroDivisionError(f"attempt {job.attempt}")

    enqueued = break_.enqueue()
    ended = run_until_idle(app, raise_errors=False)
    assert [(attempted.attempt, attempted.outcome) for attempted in ended] == [
        (1, Outcome.RETRYING),
        (2, Outcome.RETRYING),
        (3, Outcome.FAILED),
    ]
    assert [str(attempted.exception) for attempted in ended] == [
        "attempt 1",
        "attempt 2",
        "attempt 3",
    ]
    assert ended[-1].error is not None
    assert "ZeroDivisionError: attempt 3" in ended[-1].error
    assert app.get(enqueued.job_id).failed_reason == "attempts_spent"


def test_a_rejected_job_fails_at_its_first_attempt(app: Faultline) -> None:
    @app.task(name="refuse")
    def refuse(job: Job) -> None:
        raise Reject("no use")

    refuse.enqueue()
    attempted = run_one(app, raise_errors=False)
    assert attempted is not None
    assert attempted.outcome is Outcome.FAILED


def test_a_payload_that_does_not_fit_the_handler_raises_handler_failed(app: Faultline) -> None:
    @app.task(name="noop")
    def noop(job: Job) -> None:
        return None

    with psycopg.connect(app.database_url) as conn:
        conn.execute("SELECT faultline.enqueue('noop', '{\"unheard\": 1}')")
    with pytest.raises(HandlerFailed, match="does not fit noop"):
        run_one(app)


def test_scheduled_jobs_and_waiting_retries_do_not_run(app: Faultline) -> None:
    @app.task(name="later")
    def later(job: Job) -> None:
        return None

    @app.task(name="break", retry=RetryPolicy(base_seconds=300))
    def break_(job: Job) -> None:
        raise ZeroDivisionError

    waiting = later.options(run_at=datetime.now(UTC) + timedelta(hours=1)).enqueue()
    failed = break_.enqueue()
    (attempted,) = run_until_idle(app, raise_errors=False)
    assert attempted.job_id == failed.job_id
    assert app.get(waiting.job_id).attempts == 0
    assert app.get(failed.job_id).attempts == 1


def test_a_superseded_attempt_is_reported_as_stale(app: Faultline) -> None:
    @app.task(name="slow", max_attempts=1)
    def slow(job: Job) -> None:
        # A heartbeat during the next two statements would renew the lease, or tell the worker of its loss.
        with psycopg.connect(app.database_url, autocommit=True) as conn:
            assert wait_for_first_heartbeat(conn, 60)
        with psycopg.connect(app.database_url) as conn:
            conn.execute(
                "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() - '1s'::interval"
            )
            conn.execute("SELECT faultline.reconcile()")
        with job.transaction():
            pass

    slow.enqueue()
    attempted = run_one(app, raise_errors=False)
    assert attempted is not None
    assert attempted.outcome is Outcome.STALE
    assert attempted.error == "not_running"


def test_a_job_that_enqueues_itself_reaches_the_limit(app: Faultline) -> None:
    @app.task(name="again")
    def again(job: Job) -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(NotIdle, match="still due after 3 attempts"):
        run_until_idle(app, limit=3)


def test_a_handler_that_exceeds_the_timeout_is_cancelled(app: Faultline) -> None:
    @app.task(name="endless")
    async def endless(job: Job) -> None:
        await asyncio.Event().wait()

    enqueued = endless.enqueue()
    with pytest.raises(NotIdle, match=r"still due or running after 0\.1 s"):
        run_until_idle(app, timeout_seconds=0.1)
    assert app.get(enqueued.job_id).state is JobState.QUEUED  # released


def test_an_async_test_shares_its_event_loop_with_the_handler(app: Faultline) -> None:
    async def test() -> tuple[Any, Any]:
        called = asyncio.Event()

        @app.task(name="signal")
        async def signal(job: Job) -> None:
            called.set()  # bound to this loop: set() in another loop would not wake the waiter

        await signal.enqueue_async()
        waiting = asyncio.ensure_future(called.wait())
        attempted = await run_one_async(app)
        await asyncio.wait_for(waiting, 60)
        nothing = await run_until_idle_async(app)
        await app.aclose()
        return attempted, nothing

    attempted, nothing = asyncio.run(test())
    assert attempted.outcome is Outcome.SUCCEEDED
    assert nothing == []


def test_run_until_idle_can_be_called_while_an_event_loop_runs(app: Faultline) -> None:
    @app.task(name="noop")
    async def noop(job: Job) -> None:
        return None

    async def test() -> int:
        await noop.enqueue_async()
        count = len(run_until_idle(app))
        await app.aclose()
        return count

    assert asyncio.run(test()) == 1


def test_a_value_returned_after_the_commit_is_raised_in_a_test(app: Faultline) -> None:
    @app.task(name="late")
    def late(job: Job) -> dict[str, int]:
        with job.transaction():
            pass
        return {"rows": 1}

    late.enqueue()
    with pytest.raises(ResultDiscarded, match=r"returned a dict, .*set job\.result") as refused:
        run_until_idle(app)
    assert refused.value.code == "result_discarded"

    late.enqueue()
    attempted = run_one(app, raise_errors=False)
    assert attempted is not None
    assert (attempted.outcome, attempted.result) == (Outcome.SUCCEEDED, None)
    assert attempted.discarded == "the handler returned a dict"


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_snoozed_job_is_no_failure_and_runs_when_it_is_due(app: Faultline, kind: str) -> None:
    runs: list[int] = []

    def once(job: Job) -> str:
        job.progress(0.5, "half")
        runs.append(job.attempt)
        if len(runs) == 1:
            raise Snooze(seconds=60, reason="too early")
        return "done"

    @app.task(name="plain")
    def plain(job: Job) -> str:
        return once(job)

    @app.task(name="async")
    async def on_loop(job: Job) -> str:
        return once(job)

    job_id = app.find_task(kind).enqueue().job_id
    (first,) = run_until_idle(app)
    assert (first.outcome, first.error) == (Outcome.SNOOZED, "too early")
    assert isinstance(first.exception, Snooze)
    progress = app.get(job_id).progress
    assert progress is not None
    assert (progress.fraction, progress.message) == (0.5, "half")
    assert run_until_idle(app) == []
    advance(app, 60)
    (second,) = run_until_idle(app)
    assert (second.outcome, second.result, runs) == (Outcome.SUCCEEDED, "done", [1, 1])


def test_a_retry_with_a_delay_of_its_own_is_a_failed_attempt(app: Faultline) -> None:
    @app.task(name="asks")
    def asks(job: Job) -> str:
        if job.attempt == 1:
            raise Retry(after=30, reason="come back")
        return "done"

    asks.enqueue()
    (first,) = run_until_idle(app, raise_errors=False)
    assert first.outcome is Outcome.RETRYING
    with pytest.raises(Retry, match="come back"):
        first.raise_if_failed()
    advance(app, 29)
    assert run_until_idle(app) == []
    advance(app, 1)
    assert [each.result for each in run_until_idle(app)] == ["done"]


def test_giving_up_is_a_failed_attempt(app: Faultline) -> None:
    @app.task(name="gives_up", retry=RetryPolicy(give_up_on=(KeyError,)))
    def gives_up(job: Job) -> None:
        raise KeyError("card")

    gives_up.enqueue()
    (attempted,) = run_until_idle(app, raise_errors=False)
    assert attempted.outcome is Outcome.FAILED


def test_a_snooze_after_the_commit_is_raised(app: Faultline) -> None:
    @app.task(name="too_late")
    def too_late(job: Job) -> None:
        with job.transaction():
            pass
        raise Snooze(seconds=60)

    too_late.enqueue()
    with pytest.raises(InvalidInput, match="raised Snooze after it had committed its job"):
        run_until_idle(app)
