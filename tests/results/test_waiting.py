"""Waiting for a result: by notification, with polling behind it."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from faultline import (
    DatabaseUnavailable,
    Enqueued,
    Faultline,
    InvalidInput,
    Job,
    JobFailed,
    Reject,
    ResultTimeout,
    UnknownJob,
    result_waiters,
)
from tests.conftest import Connect
from tests.protocol.steps import cancel, claim, claim_batch, commit
from tests.running import Connection, count, value, working
from tests.waiting import LIMIT_SECONDS, wait_until, wait_until_async

NEVER = 3600.0  # a poll that no test waits for
SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'faultline results'"
)
ALL_AWAITED = "faultline.jobs WHERE awaited"
AWAITED = "SELECT awaited FROM faultline.jobs WHERE id = %s"


@pytest.fixture
def by_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a notification can bring the result in time."""
    monkeypatch.setattr(result_waiters, "POLL_SECONDS", NEVER)


@pytest.fixture
def by_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_waiters, "POLL_SECONDS", 0.1)


@pytest.fixture
def mail(app: Faultline) -> Any:
    @app.task(name="mail")
    async def mail(job: Job, number: int = 0) -> int:
        if number < 0:
            raise Reject("no mail of this kind")
        return number * 2

    return mail


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(100) as pool:
        yield pool


Wait = Callable[..., "Future[Any]"]


@pytest.fixture(params=["sync", "async"])
def wait(request: pytest.FixtureRequest, threads: ThreadPoolExecutor, app: Faultline) -> Wait:
    """Wait for a result in a thread, or in a task of an event loop in a thread."""

    async def on_loop(job_id: UUID, timeout: float | None) -> Any:
        try:
            return await app.result_async(job_id, timeout)
        finally:
            await app.producer.async_pools.pop(asyncio.get_running_loop()).close()

    def begin(job_id: UUID, timeout: float | None = LIMIT_SECONDS) -> Future[Any]:
        if request.param == "sync":
            return threads.submit(app.result, job_id, timeout)
        return threads.submit(lambda: asyncio.run(on_loop(job_id, timeout)))

    return begin


def marked(conn: Connection, job_id: UUID) -> None:
    wait_until(lambda: value(conn, AWAITED, job_id), "the mark of the waiter")


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("by_notification")
def test_a_result_arrives_by_notification(mail: Any, conn: Connection, wait: Wait) -> None:
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)
    lease = claim(conn)
    conn.execute("""SELECT faultline.commit(%s, %s, %s, '{"sent": 1}')""", lease)
    assert waiting.result(LIMIT_SECONDS) == {"sent": 1}


@pytest.mark.usefixtures("by_notification")
def test_a_job_that_fails_raises_its_reason_and_error(
    mail: Any, conn: Connection, wait: Wait
) -> None:
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)
    lease = claim(conn)
    conn.execute("SELECT faultline.fail(%s, %s, %s, E'bad\\nline 2', reason => 'rejected')", lease)
    with pytest.raises(JobFailed, match=rf"job {job_id} failed \(rejected\): bad$") as failed:
        waiting.result(LIMIT_SECONDS)
    assert failed.value.code == "job_failed"
    assert (failed.value.job_id, failed.value.failed_reason) == (str(job_id), "rejected")
    assert failed.value.error == "bad\nline 2"


@pytest.mark.usefixtures("by_notification")
def test_a_job_that_is_cancelled_raises_too(mail: Any, conn: Connection, wait: Wait) -> None:
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)
    cancel(conn, job_id)
    with pytest.raises(JobFailed) as failed:
        waiting.result(LIMIT_SECONDS)
    assert failed.value.failed_reason == "cancelled"


def test_the_timeout_passes_and_the_job_goes_on(
    mail: Any, app: Faultline, conn: Connection
) -> None:
    enqueued = mail.enqueue()
    with pytest.raises(ResultTimeout, match=r"has not ended after 0\.01 s") as late:
        enqueued.result(timeout=timedelta(milliseconds=10))
    assert late.value.code == "result_timeout"
    assert late.value.job_id == str(enqueued.job_id)
    commit(conn, claim(conn))
    assert enqueued.result(timeout=0) is None


def test_a_timeout_of_zero_reads_and_does_not_wait(
    app: Faultline, mail: Any, conn: Connection
) -> None:
    async def ask() -> Any:
        try:
            return await enqueued.result_async(timeout=0)
        finally:
            await app.aclose()

    enqueued = mail.enqueue()
    with pytest.raises(ResultTimeout):
        enqueued.result(0)
    commit(conn, claim(conn))
    assert asyncio.run(ask()) is None
    assert value(conn, SESSIONS) == 0


@pytest.mark.parametrize("timeout", [-1, float("nan"), timedelta(seconds=-1), "1", True])
def test_a_timeout_that_is_no_time_is_refused(mail: Any, timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout must be seconds or a timedelta"):
        mail.enqueue().result(timeout)


def test_an_unknown_job_is_refused_at_once(app: Faultline) -> None:
    with pytest.raises(UnknownJob, match="there is no job"):
        app.result(uuid4())
    with pytest.raises(InvalidInput, match="is not a job id"):
        app.result("seven")


@pytest.mark.usefixtures("by_polling")
def test_a_job_that_is_purged_while_it_is_awaited_has_its_result_in_the_ledger(
    mail: Any, conn: Connection, wait: Wait
) -> None:
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)
    with conn.transaction():
        conn.execute("SET LOCAL faultline.notify = 'off'")
        conn.execute("SELECT faultline.commit(%s, %s, %s, '5')", claim(conn))
        conn.execute("DELETE FROM faultline.jobs WHERE id = %s", [job_id])
    assert waiting.result(LIMIT_SECONDS) == 5


@pytest.mark.usefixtures("by_polling")
def test_a_job_that_vanishes_while_it_is_awaited_is_unknown(
    mail: Any, conn: Connection, wait: Wait
) -> None:
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)
    conn.execute("DELETE FROM faultline.jobs WHERE id = %s", [job_id])
    with pytest.raises(UnknownJob, match="it was purged"):
        waiting.result(LIMIT_SECONDS)


def test_enqueued_waits_through_the_application_that_made_it(app: Faultline, mail: Any) -> None:
    first, [second] = mail.enqueue(number=1), mail.enqueue_many([{"number": 2}])

    async def both() -> list[Any]:
        third, [fourth] = (
            await mail.enqueue_async(number=3),
            await mail.enqueue_many_async([{"number": 4}]),
        )
        try:
            return [await each.result_async(LIMIT_SECONDS) for each in (third, fourth)]
        finally:
            await app.aclose()

    with working(app):
        assert [each.result(LIMIT_SECONDS) for each in (first, second)] == [2, 4]
        assert asyncio.run(both()) == [6, 8]
        with pytest.raises(JobFailed, match="no mail of this kind"):
            mail.enqueue(number=-1).result(LIMIT_SECONDS)


def test_the_application_of_an_enqueued_is_neither_compared_nor_shown_nor_pickled(
    mail: Any,
) -> None:
    enqueued = mail.enqueue()
    plain = Enqueued(enqueued.job_id, False)
    assert (enqueued, hash(enqueued), repr(enqueued)) == (plain, hash(plain), repr(plain))
    copy = pickle.loads(pickle.dumps(enqueued))  # noqa: S301 - our own
    assert copy == enqueued
    with pytest.raises(FrozenInstanceError):
        copy.existing = True
    with pytest.raises(InvalidInput, match=r"wait with app\.result"):
        copy.result()


# ── notifications and polls ──────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("by_polling")
def test_a_lost_notification_costs_one_poll(mail: Any, conn: Connection, wait: Wait) -> None:
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)
    conn.execute("SET faultline.notify = 'off'")
    commit(conn, claim(conn))
    assert waiting.result(LIMIT_SECONDS) is None


@pytest.mark.usefixtures("by_notification")
def test_a_job_that_was_locked_is_marked_again_without_waiting_for_a_poll(
    mail: Any, conn: Connection, connect: Connect, wait: Wait
) -> None:
    job_id, other = mail.enqueue().job_id, connect()
    lease = claim(conn)
    with other.transaction(force_rollback=True):
        commit(other, lease)
        waiting = wait(job_id)
        wait_until(lambda: value(conn, SESSIONS) == 1, "the session of the waiter")
        assert value(conn, AWAITED, job_id) is False
    marked(conn, job_id)
    commit(conn, lease)
    assert waiting.result(LIMIT_SECONDS) is None


@pytest.mark.usefixtures("by_notification")
def test_a_lost_session_is_opened_again_and_the_outcome_is_read(
    mail: Any, conn: Connection, wait: Wait
) -> None:
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)
    ending = (
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'faultline results'"
    )
    with conn.transaction():
        commit(conn, claim(conn))
        assert value(conn, ending) is True
    assert waiting.result(LIMIT_SECONDS) is None


@pytest.mark.usefixtures("by_notification")
def test_an_outage_that_lasts_is_an_error_of_every_waiter(
    mail: Any, app: Faultline, conn: Connection, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_waiters, "OUTAGE_SECONDS", 0.2)
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)

    def refuse(*_: Any, **__: Any) -> Any:
        raise DatabaseUnavailable("the server is away")

    monkeypatch.setattr(result_waiters, "ListeningSession", refuse)
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'faultline results'"
    )
    with pytest.raises(DatabaseUnavailable, match="the server is away"):
        waiting.result(LIMIT_SECONDS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_in_the_thread_is_an_error_of_every_waiter(
    mail: Any, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(result_waiters, "ListeningSession", mistake)
    with pytest.raises(ZeroDivisionError):
        wait(mail.enqueue().job_id).result(LIMIT_SECONDS)


# ── many waiters ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("by_notification")
def test_a_thousand_waiters_share_one_session_and_get_their_own_results(
    app: Faultline, mail: Any, conn: Connection
) -> None:
    async def wait_for_all() -> list[Any]:
        jobs = await mail.enqueue_many_async([{"number": number} for number in range(1000)])
        waiting = [asyncio.create_task(each.result_async(LIMIT_SECONDS)) for each in jobs]
        try:
            await wait_until_async(lambda: count(conn, ALL_AWAITED) == 1000, "all marks")
            assert value(conn, SESSIONS) == 1
            with working(app):
                return await asyncio.gather(*waiting)
        finally:
            await app.aclose()

    assert asyncio.run(wait_for_all()) == [number * 2 for number in range(1000)]


@pytest.mark.usefixtures("by_notification")
def test_two_waiters_for_one_job_get_the_same_result(
    app: Faultline, mail: Any, conn: Connection, threads: ThreadPoolExecutor
) -> None:
    job_id = mail.enqueue().job_id
    waiting = [threads.submit(app.result, job_id, LIMIT_SECONDS) for _ in range(2)]
    marked(conn, job_id)
    conn.execute("SELECT faultline.commit(%s, %s, %s, '3')", claim(conn))
    assert [each.result(LIMIT_SECONDS) for each in waiting] == [3, 3]


@pytest.mark.usefixtures("by_notification")
def test_a_waiter_that_leaves_does_not_disturb_another_one(
    app: Faultline, mail: Any, conn: Connection, threads: ThreadPoolExecutor
) -> None:
    job_id = mail.enqueue().job_id
    waiting = threads.submit(app.result, job_id, LIMIT_SECONDS)
    marked(conn, job_id)
    with pytest.raises(ResultTimeout):
        app.result(job_id, timeout=0.05)
    commit(conn, claim(conn))
    assert waiting.result(LIMIT_SECONDS) is None


def test_a_cancelled_task_leaves_no_waiter_behind(
    app: Faultline, mail: Any, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_waiters, "LINGER_SECONDS", 0.0)

    async def give_up() -> None:
        enqueued = await mail.enqueue_async()
        task = asyncio.create_task(enqueued.result_async())
        await asyncio.to_thread(marked, conn, enqueued.job_id)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(
            wait_until, lambda: value(conn, SESSIONS) == 0, "the end of the session"
        )
        await app.aclose()

    asyncio.run(give_up())


# ── connections ──────────────────────────────────────────────────────────────────────────────────


def test_a_finished_job_needs_no_session_and_no_thread(
    app: Faultline, mail: Any, conn: Connection
) -> None:
    enqueued = mail.enqueue()
    commit(conn, claim(conn))
    assert enqueued.result() is None
    assert value(conn, SESSIONS) == 0
    assert "faultline-results" not in {thread.name for thread in threading.enumerate()}


def test_session_and_thread_end_soon_after_the_last_waiter(
    app: Faultline, mail: Any, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_waiters, "LINGER_SECONDS", 0.05)
    for _ in range(2):
        with pytest.raises(ResultTimeout):
            mail.enqueue().result(0.2)
        wait_until(lambda: value(conn, SESSIONS) == 0, "the end of the session")


@pytest.mark.usefixtures("by_notification")
def test_closing_the_application_ends_its_waiters(
    app: Faultline, mail: Any, conn: Connection, wait: Wait
) -> None:
    job_id = mail.enqueue().job_id
    waiting = wait(job_id)
    marked(conn, job_id)
    app.close()
    with pytest.raises(DatabaseUnavailable, match="the application was closed"):
        waiting.result(LIMIT_SECONDS)
    wait_until(lambda: value(conn, SESSIONS) == 0, "the end of the session")
    with pytest.raises(ResultTimeout):  # a closed application can be used again
        app.result(job_id, 0.1)


# ── in handlers ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_handler_waits_for_another_job(app: Faultline, mail: Any, colour: str) -> None:
    @app.task(name="async")
    async def on_loop(job: Job) -> Any:
        return await (await mail.enqueue_async(number=4)).result_async(LIMIT_SECONDS)

    @app.task(name="plain")
    def in_thread(job: Job) -> Any:
        return mail.enqueue(number=4).result(LIMIT_SECONDS)

    with working(app, concurrency=2):
        assert app.find_task(colour).enqueue().result(LIMIT_SECONDS) == 8


def test_a_handler_that_waits_is_ended_by_its_timeout(app: Faultline, mail: Any) -> None:
    @app.task(name="stuck", max_attempts=1, timeout=0.2)
    def stuck(job: Job) -> Any:
        return app.result(unserved)

    unserved = mail.options(queue="unserved").enqueue().job_id
    with working(app), pytest.raises(JobFailed, match="AttemptTimeout"):
        stuck.enqueue().result(LIMIT_SECONDS)
    watcher = next(iter(app._waiters._watchers.values()))
    wait_until(lambda: not watcher.watched(), "the end of the handler's wait")


# ── processes ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("by_notification")
def test_a_forked_child_waits_by_itself_and_leaves_its_parent_alone(
    app: Faultline, mail: Any, conn: Connection, threads: ThreadPoolExecutor
) -> None:
    ours, theirs = mail.enqueue().job_id, mail.enqueue().job_id
    waiting = threads.submit(app.result, ours, LIMIT_SECONDS)
    marked(conn, ours)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if app.result(theirs, LIMIT_SECONDS) == "theirs" else 2
        finally:
            os._exit(status)
    marked(conn, theirs)
    assert value(conn, SESSIONS) == 2
    leases = {lease.job_id: lease for lease in claim_batch(conn)}
    conn.execute("""SELECT faultline.commit(%s, %s, %s, '"theirs"')""", leases[theirs])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    conn.execute("""SELECT faultline.commit(%s, %s, %s, '"ours"')""", leases[ours])
    assert waiting.result(LIMIT_SECONDS) == "ours"


def test_a_waiter_that_is_killed_leaves_nothing_that_hurts(
    app: Faultline, mail: Any, conn: Connection
) -> None:
    job_id = mail.enqueue(number=3).job_id
    pid = os.fork()
    if pid == 0:
        try:
            app.result(job_id, LIMIT_SECONDS)
        finally:
            os._exit(1)
    marked(conn, job_id)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_until(lambda: value(conn, SESSIONS) == 0, "the end of the session")
    with working(app):
        assert app.result(job_id, LIMIT_SECONDS) == 6
    assert count(conn, ALL_AWAITED) == 0
