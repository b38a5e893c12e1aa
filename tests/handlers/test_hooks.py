"""around_attempt: where the hooks run, in which order, and what their errors do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from faultline import Faultline, InvalidInput, Job, JobState
from faultline.testing import run_one
from tests.running import Connection, EventTap, ended, work_off, working


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

    def close_if_lost(job: Job) -> Iterator[None]:
        try:
            connection().execute("SELECT 1")
        except psycopg.OperationalError:
            del own.conn
        yield

    if has_hook:
        app.around_attempt(close_if_lost)

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


def test_hooks_nest_in_their_order_and_run_where_the_handler_runs(app: Faultline) -> None:
    seen: list[tuple[str, str, str]] = []

    def note(what: str, job: Job) -> None:
        seen.append((job.task, what, threading.current_thread().name))

    @app.around_attempt
    def outer(job: Job) -> Iterator[None]:
        note("outer begins", job)
        yield
        note("outer ends", job)

    @app.around_attempt
    async def waiting(job: Job) -> AsyncIterator[None]:
        note("async begins", job)
        yield
        note("async ends", job)

    @app.around_attempt
    def inner(job: Job) -> Iterator[None]:
        note("inner begins", job)
        yield
        note("inner ends", job)

    @app.task(name="plain", max_attempts=1)
    def plain(job: Job) -> str:
        note("handler", job)
        return "plain"

    @app.task(name="awaited", max_attempts=1)
    async def awaited(job: Job) -> str:
        note("handler", job)
        return "awaited"

    with working(app):
        results = [ended(app, task.enqueue().job_id).result for task in (plain, awaited)]
    assert results == ["plain", "awaited"]

    def steps(task: str) -> list[str]:
        return [what for name, what, _ in seen if name == task]

    around = ["outer begins", "inner begins", "handler", "inner ends", "outer ends"]
    assert steps("plain") == around
    assert steps("awaited") == [around[0], "async begins", *around[1:4], "async ends", around[4]]
    for name in ("plain", "awaited"):
        assert len({thread for task, _, thread in seen if task == name}) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_before_the_yield_fails_the_attempt_without_the_handler(
    app: Faultline, is_async: bool
) -> None:
    ran: list[str] = []

    @app.around_attempt
    def outer(job: Job) -> Iterator[None]:
        with contextlib.suppress(ValueError):
            yield
        ran.append("outer ends")

    if is_async:

        @app.around_attempt
        async def refuse_async(job: Job) -> AsyncIterator[None]:
            raise ValueError("not today")
            yield

        @app.task(max_attempts=1)
        async def handle(job: Job) -> None:
            ran.append("handler")
    else:

        @app.around_attempt
        def refuse(job: Job) -> Iterator[None]:
            raise ValueError("not today")
            yield

        @app.task(max_attempts=1)
        def handle(job: Job) -> None:
            ran.append("handler")

    record = work_off(app, handle.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert "ValueError: not today" in str(record.last_error)
    assert ran == ["outer ends"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [KeyError("lost"), StopIteration("odd"), SystemExit(3)])
def test_a_hook_sees_the_error_of_the_handler_and_cannot_hide_it(
    app: Faultline, is_async: bool, error: BaseException
) -> None:
    seen: list[BaseException] = []

    @app.around_attempt
    def catch(job: Job) -> Iterator[None]:
        try:
            yield
        except BaseException as raised:
            seen.append(raised)

    @app.around_attempt
    def let_through(job: Job) -> Iterator[None]:
        yield

    if is_async:

        @app.task(max_attempts=1)
        async def handle(job: Job) -> None:
            raise error
    else:

        @app.task(max_attempts=1)
        def handle(job: Job) -> None:
            raise error

    record = work_off(app, handle.enqueue().job_id)
    assert record.state is JobState.FAILED
    assert type(error).__name__ in str(record.last_error)
    if not (is_async and isinstance(error, StopIteration)):  # a coroutine cannot raise it
        assert seen == [error]


@pytest.mark.parametrize("is_async", [False, True])
def test_another_error_of_a_hook_replaces_the_outcome(app: Faultline, is_async: bool) -> None:
    @app.around_attempt
    def translate(job: Job) -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise ValueError("translated") from error
        raise RuntimeError("after success")

    handlers: dict[bool, Any] = {}

    def fails(job: Job, ok: bool) -> None:
        if not ok:
            raise KeyError("lost")

    async def fails_async(job: Job, ok: bool) -> None:
        fails(job, ok)

    handlers = {False: fails, True: fails_async}
    task: Any = app.task(max_attempts=1)(handlers[is_async])
    with working(app):
        failed, succeeded = (ended(app, task.enqueue(ok=ok).job_id) for ok in (False, True))
    assert "ValueError: translated" in str(failed.last_error)
    assert "RuntimeError: after success" in str(succeeded.last_error)


def test_an_error_of_a_hook_after_the_commit_is_logged_and_the_job_has_succeeded(
    app: Faultline, events: EventTap
) -> None:
    @app.around_attempt
    def too_late(job: Job) -> Iterator[None]:
        yield
        raise RuntimeError("too late")

    @app.task(max_attempts=1)
    def pay(job: Job) -> None:
        with job.transaction():
            pass

    record = work_off(app, pay.enqueue().job_id)
    assert record.state is JobState.SUCCEEDED
    [said] = events.of("handler_error_after_commit")
    assert "too late" in said["error"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("yields", "complaint"), [(0, "did not yield"), (2, "more than once")])
def test_a_hook_that_does_not_yield_once_fails_the_attempt(
    app: Faultline, is_async: bool, yields: int, complaint: str
) -> None:
    def plain(job: Job) -> Iterator[None]:
        for _ in range(yields):
            yield

    async def awaited(job: Job) -> AsyncIterator[None]:
        for _ in range(yields):
            yield

    hook: Any = awaited if is_async else plain
    app.around_attempt(hook)

    @app.task(max_attempts=1)
    async def handle(job: Job) -> None: ...

    assert complaint in str(work_off(app, handle.enqueue().job_id).last_error)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_that_cannot_be_closed_does_not_keep_the_hooks_around_it_from_ending(
    app: Faultline, is_async: bool
) -> None:
    ended_hooks: list[str] = []

    @app.around_attempt
    def outer(job: Job) -> Iterator[None]:
        try:
            yield
        finally:
            ended_hooks.append("outer")

    def plain(job: Job) -> Iterator[None]:
        yield
        with contextlib.suppress(GeneratorExit):
            yield
        yield

    async def awaited(job: Job) -> AsyncIterator[None]:
        yield
        try:
            yield
        finally:
            raise RuntimeError("at the end")

    hook: Any = awaited if is_async else plain
    app.around_attempt(hook)

    @app.task(max_attempts=1)
    async def handle(job: Job) -> None: ...

    record = work_off(app, handle.enqueue().job_id)
    assert "more than once" in str(record.last_error)
    assert ended_hooks == ["outer"]


def test_a_function_without_yield_is_refused_at_registration(app: Faultline) -> None:
    def no_generator(job: Job) -> None: ...

    @contextlib.contextmanager
    def manager(job: Job) -> Iterator[None]:
        yield

    for hook in (no_generator, manager, None):
        with pytest.raises(InvalidInput, match="generator function"):
            app.around_attempt(hook)  # type: ignore[type-var]
    with pytest.raises(InvalidInput, match="must be a function"):
        app.on_startup("now")  # type: ignore[type-var]


def test_a_test_of_a_handler_runs_its_hooks(app: Faultline) -> None:
    ran: list[str] = []

    @app.around_attempt
    def note(job: Job) -> Iterator[None]:
        ran.append("hook")
        yield

    @app.task()
    def handle(job: Job) -> None:
        ran.append("handler")

    handle.enqueue()
    run_one(app)
    assert ran == ["hook", "handler"]


def test_a_timeout_reaches_the_cleanup_of_a_hook(app: Faultline) -> None:
    ended_by: list[str] = []

    @app.around_attempt
    def clean_up(job: Job) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            ended_by.append(type(error).__name__)
            raise

    @app.task(max_attempts=1, timeout=0.2)
    def turn(job: Job) -> None:
        while True:
            pass

    record = work_off(app, turn.enqueue().job_id)
    assert "ran longer than" in str(record.last_error)
    assert ended_by == ["AttemptAborted"]
