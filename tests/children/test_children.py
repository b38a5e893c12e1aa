"""Handlers in child processes can be killed or crash without harming the worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from faultline import Faultline, InvalidInput, Job, JobState
from tests.children import jobs
from tests.running import EventTap, ended, value, work_off, working
from tests.waiting import wait_until
from tests.workers.test_charged_attempts import END_ALL, END_ONE, IS_SLEEPING, outcomes

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(
    database_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Faultline]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    conn.execute("CREATE TABLE effects (job_id uuid, amount int)")
    yield jobs.app
    jobs.app.close()


def effects(conn: Connection) -> list[Any]:
    return [amount for (amount,) in conn.execute("SELECT amount FROM effects").fetchall()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_handler_runs_in_another_process_which_ends_with_the_worker(app: Faultline) -> None:
    job = work_off(app, jobs.pid_of.enqueue().job_id)

    assert job.state is JobState.SUCCEEDED
    assert job.result["pid"] != os.getpid()
    assert job.result["token"] == 1
    assert job.result["has_lease"]
    wait_until(lambda: not is_alive(job.result["pid"]), "the end of the child")


def test_a_child_process_decodes_rich_arguments(app: Faultline) -> None:
    order = jobs.Order(Decimal("1.10"), date(2026, 1, 31))
    assert work_off(app, jobs.pay_order.enqueue(order).job_id).result == "2.20 until 31.01."


def test_a_child_process_is_reused(app: Faultline) -> None:
    first, second = jobs.pid_of.enqueue(), jobs.pid_of.enqueue()
    with working(app, concurrency=1):
        pids = {ended(app, job.job_id).result["pid"] for job in (first, second)}

    assert len(pids) == 1


@pytest.mark.slow
def test_hooks_run_in_the_child(app: Faultline) -> None:
    assert work_off(app, jobs.process_of_hook.enqueue().job_id).result is True
    assert jobs.hooked != [os.getpid()]


def test_a_stale_lease_error_that_the_handler_raises_is_an_ordinary_failure(app: Faultline) -> None:
    """And an error that cannot be printed does not end the child."""
    tried = [jobs.raise_hostile.enqueue(stale).job_id for stale in (True, False)]
    with working(app, concurrency=1):
        stale, unspeakable = (ended(app, job_id) for job_id in tried)

    assert (stale.failed_reason, unspeakable.failed_reason) == ("attempts_spent",) * 2
    assert "StaleLease: stale lease: token_mismatch" in str(stale.last_error)
    assert "Unspeakable" in str(unspeakable.last_error)


def test_a_transaction_in_a_child_is_fenced(app: Faultline, conn: Connection) -> None:
    job = work_off(app, jobs.pay.enqueue(5).job_id)

    assert job.state is JobState.SUCCEEDED
    assert job.result == {"paid": 5}
    assert effects(conn) == [5]


@pytest.mark.parametrize(("amount", "kind"), [(1, "list"), (2, "set")])
def test_a_value_returned_after_the_commit_in_a_child_is_reported(
    app: Faultline, events: EventTap, amount: int, kind: str
) -> None:
    job = work_off(app, jobs.pay_and_return.enqueue(amount=amount).job_id)
    assert (job.state, job.result) == (JobState.SUCCEEDED, None)
    [line] = events.of("result_discarded")
    assert line["reason"].startswith(f"the handler returned a {kind}, which is not stored")


def test_a_result_that_a_child_sets_without_a_transaction_is_stored(
    app: Faultline, events: EventTap
) -> None:
    assert work_off(app, jobs.set_result_only.enqueue().job_id).result == "set"
    assert events.of("result_discarded") == []


@pytest.mark.slow
def test_a_job_whose_child_dies_after_the_commit_has_succeeded(
    app: Faultline, conn: Connection
) -> None:
    job = work_off(app, jobs.pay_and_die.enqueue().job_id)

    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
    assert effects(conn) == [1]


def test_a_child_that_dies_before_its_commit_leaves_no_effect(
    app: Faultline, conn: Connection
) -> None:
    job = work_off(app, jobs.die_before_committing.enqueue().job_id)

    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 3)
    assert effects(conn) == [1]


@pytest.mark.parametrize(
    ("task", "reason", "says"),
    [
        (jobs.crash_in_native_code, "poison", "died (exit code -11)"),
        (jobs.loop_for_ever, "attempts_spent", "ran longer than 1 s"),
        (jobs.exit_the_process, "attempts_spent", "SystemExit: 3"),
        (jobs.raise_something, "attempts_spent", "KeyError: 'the key that was missing'"),
        (jobs.reject, "rejected", "of no use"),
        (jobs.return_no_json, "rejected", "the result is an object, which JSON cannot hold"),
    ],
)
def test_whatever_a_handler_does_to_its_process_the_worker_runs_the_next_job(
    app: Faultline, task: Any, reason: str, says: str
) -> None:
    with working(app):
        job = ended(app, task.enqueue().job_id)
        after = ended(app, jobs.pid_of.enqueue().job_id)

    assert (job.state, job.failed_reason) == (JobState.FAILED, reason)
    assert says in (job.last_error or "")
    assert after.state is JobState.SUCCEEDED


def test_the_traceback_of_the_child_is_kept(app: Faultline) -> None:
    job = work_off(app, jobs.raise_something.enqueue().job_id)

    assert "in raise_something" in (job.last_error or "")


def test_a_cancelled_job_is_killed(app: Faultline, conn: Connection) -> None:
    with working(app, lease_seconds=600, heartbeat_seconds=0.1):
        job_id = jobs.wait_for_the_end.enqueue().job_id
        (pid,) = wait_until(lambda: effects(conn), "its beginning")
        app.cancel(job_id)
        wait_until(lambda: not is_alive(pid), "its end")

    assert app.get(job_id).failed_reason == "cancelled"


@pytest.mark.slow
def test_draining_kills_a_child_that_does_not_end_and_releases_its_job(
    app: Faultline, conn: Connection
) -> None:
    with working(app, drain_seconds=0.1):
        job_id = jobs.wait_for_the_end.enqueue().job_id
        (pid,) = wait_until(lambda: effects(conn), "its beginning")

    job = app.get(job_id)
    assert (job.state, job.attempts) == (JobState.QUEUED, 0)
    assert not is_alive(pid)


def test_a_handler_that_cannot_be_imported_is_rejected_when_it_is_defined() -> None:
    app = Faultline()

    with pytest.raises(InvalidInput, match="imported by name"):

        @app.task(process=True)
        def local(job: Job) -> None: ...


def test_a_coroutine_is_rejected() -> None:
    app = Faultline()

    async def handler(job: Job) -> None: ...

    with pytest.raises(InvalidInput, match="plain `def`"):
        app.task(process=True)(handler)


@pytest.mark.slow
def test_waiting_for_a_free_child_does_not_count_towards_the_timeout(app: Faultline) -> None:
    """With fewer children than jobs, the last jobs wait longer than their timeout."""
    waves = 16
    queued = jobs.take_a_moment.enqueue_many([{}] * (waves * max(4, os.cpu_count() or 1)))
    with working(app, concurrency=len(queued)):
        states = {ended(app, job.job_id).state for job in queued}

    assert states == {JobState.SUCCEEDED}


@pytest.mark.slow
def test_a_task_that_the_child_does_not_find_is_deferred_and_uses_no_attempt(
    app: Faultline, conn: Connection
) -> None:
    job_id = jobs.only_in_the_worker.enqueue().job_id
    with working(app):
        wait_until(
            lambda: conn.execute("SELECT FROM faultline.deferred_jobs").fetchall(), "deferral"
        )
        assert ended(app, jobs.pid_of.enqueue().job_id).state is JobState.SUCCEEDED

    job = app.get(job_id)
    assert (job.state, job.attempts, job.fencing_token) == (JobState.QUEUED, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "expected"),
    [(END_ALL, (1, ["released"])), (END_ONE, (2, ["failed"]))],
    ids=["all", "one"],
)
def test_a_childs_lost_statement_uses_an_attempt_unless_the_worker_lost_its_sessions_too(
    app: Faultline, conn: Connection, end: str, expected: tuple[int, list[str]]
) -> None:
    job_id = jobs.sleep_in_a_statement.enqueue().job_id
    with working(app):
        wait_until(lambda: value(conn, IS_SLEEPING) == 1, "the statement")
        conn.execute(end)
        job = ended(app, job_id)
    assert job.state is JobState.SUCCEEDED
    assert (job.attempts, outcomes(conn, job_id)) == expected
