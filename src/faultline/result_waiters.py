"""Waits for results: one thread and one session for all waiters of a process.

The thread listens for the notification that the end of an awaited job sends (results.sql). Behind that it
polls: it reads the outcomes of all awaited jobs in one statement. So a lost notification costs one poll,
and behind a pooler, where LISTEN does not work, polling is all there is. Thread and session end soon after
the last waiter.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

from faultline import handler_interrupts
from faultline.errors import (
    DatabaseUnavailable,
    FaultlineError,
    InvalidInput,
    JobFailed,
    ResultTimeout,
    UnknownJob,
)
from faultline.model import JobState
from faultline.postgres.answer_limit import was_unanswered
from faultline.postgres.driver import DriverError
from faultline.postgres.errors import explain_error
from faultline.postgres.listening import ListeningSession
from faultline.postgres.reconnecting import Backoff, is_transient
from faultline.statements.outcomes import CHANNEL, AwaitedJob, await_jobs, outcomes_of
from faultline.statements.statement import Statement

T = TypeVar("T")

POLL_SECONDS = 2.0
DEAF_POLL_SECONDS = 0.2  # without notifications
# A job whose row was locked could not be marked, so its end may send no notification.
MARK_AGAIN_SECONDS = 0.05
LINGER_SECONDS = 2.0  # a caller often waits for one job after another
SHORT_WAIT_SECONDS = 0.5  # such a caller does not wait for the thread to connect
OUTAGE_SECONDS = 60.0  # then the waiters get DatabaseUnavailable
JOBS_PER_STATEMENT = 1_000
_INTERRUPT_SECONDS = 0.5  # how soon a waiting thread notices that its attempt was ended
_CLOSE_SECONDS = 5.0


class RunsStatements(Protocol):
    """The part of an application that waiting needs."""

    @property
    def database_url(self) -> str: ...
    def execute(self, statement: Statement[T]) -> T: ...
    def execute_async(self, statement: Statement[T]) -> Coroutine[Any, Any, T]: ...


class ResultWaiters:
    """The waiters of one application. A forked child gets a thread of its own."""

    def __init__(self, app: RunsStatements) -> None:
        self._app = app
        self._watchers: dict[int, JobWatcher] = {}  # by process
        self._reading = threading.Lock()  # never waited for: a fork may have left it locked

    def result(self, job_id: UUID, timeout: float | timedelta | None = None) -> Any:
        seconds = seconds_of(timeout)
        deadline = time.monotonic() + seconds
        with self._turn_to_read(seconds) as reads:
            if reads:
                [outcome] = self._app.execute(outcomes_of([job_id]))
                if outcome.has_ended:
                    return result_of(outcome)
        if time.monotonic() >= deadline:
            raise ResultTimeout(str(job_id), seconds=seconds)
        with self._watched(job_id) as (ended, hold), hold.released():
            while not ended.done():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ResultTimeout(str(job_id), seconds=seconds)
                with contextlib.suppress(TimeoutError):
                    ended.exception(min(left, _INTERRUPT_SECONDS))
        return result_of(ended.result())

    async def result_async(self, job_id: UUID, timeout: float | timedelta | None = None) -> Any:
        seconds = seconds_of(timeout)
        deadline = time.monotonic() + seconds
        with self._turn_to_read(seconds) as reads:
            if reads:
                [outcome] = await self._app.execute_async(outcomes_of([job_id]))
                if outcome.has_ended:
                    return result_of(outcome)
        left = deadline - time.monotonic()
        if left <= 0:
            raise ResultTimeout(str(job_id), seconds=seconds)
        with self._watched(job_id) as (ended, _):
            try:
                async with asyncio.timeout(None if math.isinf(left) else left):
                    return result_of(await asyncio.wrap_future(ended))
            except TimeoutError:
                raise ResultTimeout(str(job_id), seconds=seconds) from None

    @contextlib.contextmanager
    def _turn_to_read(self, seconds: float) -> Iterator[bool]:
        """Whether the caller reads the outcome itself, which needs no thread if it ended.

        Of callers that come at once one does; the thread reads the jobs of the others in one statement.
        """
        watcher = self._watchers.get(os.getpid())
        is_first = self._reading.acquire(blocking=False)
        try:
            is_alone = is_first and (watcher is None or not watcher.is_active)
            yield is_alone or seconds < SHORT_WAIT_SECONDS
        finally:
            if is_first:
                self._reading.release()

    @contextlib.contextmanager
    def _watched(
        self, job_id: UUID
    ) -> Iterator[tuple[Future[AwaitedJob], handler_interrupts.Hold]]:
        """Watch a job; an interrupt of the thread cannot leave it watched for ever."""
        process = os.getpid()
        watcher = self._watchers.get(process)
        if watcher is None:  # setdefault is atomic; a lock could have been locked when we forked
            watcher = self._watchers.setdefault(process, JobWatcher(self._app.database_url))
        with handler_interrupts.held() as hold:
            ended = watcher.add(job_id)
            try:
                yield ended, hold
            finally:
                watcher.remove(job_id, ended)

    def close(self) -> None:
        """End the thread of this process; its waiters get an error."""
        if watcher := self._watchers.pop(os.getpid(), None):
            watcher.close()


def seconds_of(timeout: float | timedelta | None) -> float:
    if timeout is None:
        return math.inf
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidInput(f"timeout must be seconds or a timedelta, at least 0, not {timeout!r}")
    return float(seconds)


def result_of(outcome: AwaitedJob) -> Any:
    """The result; raises JobFailed, or UnknownJob."""
    if outcome.state is JobState.SUCCEEDED:
        return outcome.result
    job_id = str(outcome.job_id)
    if outcome.state is JobState.FAILED:
        raise JobFailed(job_id, failed_reason=str(outcome.failed_reason), error=outcome.error)
    raise UnknownJob(
        f"there is no job {job_id}",
        hint="it was purged, or the transaction that enqueued it has not committed",
    )


class WatcherClosed(DatabaseUnavailable):
    """Raised in waiters when their application is closed."""

    def __init__(self) -> None:
        super().__init__("the application was closed while it waited for a result")


class JobWatcher:
    """Watches jobs until they end, in a thread that exists while there are any."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._waiting: dict[UUID, list[Future[AwaitedJob]]] = {}
        self._new: set[UUID] = set()  # not marked and not read yet
        self._thread: threading.Thread | None = None
        self._sender: socket.socket | None = None  # wakes the thread
        self._is_closed = False

    @property
    def is_active(self) -> bool:
        return self._thread is not None

    def add(self, job_id: UUID) -> Future[AwaitedJob]:
        ended: Future[AwaitedJob] = Future()
        with self._lock:
            if self._is_closed:
                raise WatcherClosed
            if self._thread is None:
                self._start()
            self._waiting.setdefault(job_id, []).append(ended)
            self._new.add(job_id)
            self._wake()
        return ended

    def remove(self, job_id: UUID, ended: Future[AwaitedJob]) -> None:
        with self._lock:
            futures = self._waiting.get(job_id, [])
            if ended in futures:
                futures.remove(ended)
                if not futures:
                    del self._waiting[job_id]
                    self._new.discard(job_id)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            thread = self._thread
            self._wake()
        self.fail(WatcherClosed())
        if thread is not None:
            thread.join(_CLOSE_SECONDS)

    async def wait_async(self, job_id: UUID, seconds: float) -> None:
        """Wait until the job has ended, the time has passed or this watcher is closed."""
        with contextlib.suppress(TimeoutError, WatcherClosed):
            ended = self.add(job_id)
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.wrap_future(ended)
            finally:
                self.remove(job_id, ended)

    def _start(self) -> None:
        receiver, self._sender = socket.socketpair()
        receiver.setblocking(False)
        self._sender.setblocking(False)
        thread = threading.Thread(
            target=Watch(self, self._url, receiver).run, name="faultline-results", daemon=True
        )
        thread.start()
        self._thread = thread

    def _wake(self) -> None:
        if self._sender is not None:
            with contextlib.suppress(BlockingIOError):  # full: the thread will wake
                self._sender.send(b"x")

    # ── called by the thread ─────────────────────────────────────────────────────────────────────

    def take_new(self) -> list[UUID]:
        with self._lock:
            new, self._new = list(self._new), set()
        return new

    def watched(self, job_ids: Iterable[UUID] | None = None) -> list[UUID]:
        """All jobs that are watched, or those of `job_ids` that are."""
        with self._lock:
            if job_ids is None:
                return list(self._waiting)
            return [job_id for job_id in dict.fromkeys(job_ids) if job_id in self._waiting]

    def may_end(self, *, idle_seconds: float) -> bool:
        """End the thread if no caller waits; a later caller starts another one."""
        with self._lock:
            if not self._is_closed and (self._waiting or idle_seconds < LINGER_SECONDS):
                return False
            self._forget_thread()
            return True

    def _forget_thread(self) -> None:
        self._thread = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def end(self, outcome: AwaitedJob) -> None:
        with self._lock:
            futures = self._waiting.pop(outcome.job_id, [])
            self._new.discard(outcome.job_id)
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_result(outcome)

    def fail(self, error: Exception) -> None:
        """Give all waiters an error."""
        with self._lock:
            waiting, self._waiting, self._new = self._waiting, {}, set()
        for futures in waiting.values():
            for future in futures:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)

    def crash(self, error: Exception) -> None:
        """The thread ends by a mistake of its own: no waiter may wait for ever."""
        with self._lock:
            self._forget_thread()
        self.fail(error)


class Watch:
    """The work of the thread: marks jobs, reads their outcomes, waits for news."""

    def __init__(self, jobs: JobWatcher, url: str, wakeup: socket.socket) -> None:
        self._jobs = jobs
        self._url = url
        self._wakeup = wakeup
        self._session: ListeningSession | None = None
        self._backoff = Backoff()
        self._failing_since: float | None = None
        self._used_at = time.monotonic()  # when there was a waiter last
        self._poll_at = 0.0
        self._unmarked: set[UUID] = set()
        self._mark_at = math.inf
        self._mark_pause = MARK_AGAIN_SECONDS
        self._notified: set[UUID] = set()
        self._batch_size = JOBS_PER_STATEMENT

    def run(self) -> None:
        try:
            while not self._jobs.may_end(idle_seconds=time.monotonic() - self._used_at):
                try:
                    self._round()
                except (FaultlineError, DriverError) as error:
                    self._pause_after(error)
        except Exception as error:
            self._jobs.crash(error)
            raise
        finally:
            self._close()
            self._wakeup.close()

    def _round(self) -> None:
        session = self._session
        if session is None:
            session = self._session = ListeningSession(
                self._url, channel=CHANNEL, application_name="faultline results"
            )
            self._poll_at = 0.0
        now = time.monotonic()
        new = self._jobs.take_new()
        is_poll = now >= self._poll_at
        if now >= self._mark_at:
            new += self._unmarked
        wanted = self._jobs.watched(None if is_poll else [*new, *self._notified])
        self._notified.clear()
        if not session.is_deaf:
            for some in self._parts(self._jobs.watched(new)):
                session.run(await_jobs(some))
        self._read(session, wanted, now)
        self._failing_since = None
        self._backoff.reset()
        interval = DEAF_POLL_SECONDS if session.is_deaf else POLL_SECONDS
        if is_poll:
            self._poll_at = now + interval
        if wanted or self._jobs.watched():
            self._used_at = time.monotonic()
        self._wait(session)

    def _read(self, session: ListeningSession, wanted: list[UUID], now: float) -> None:
        unmarked = set()
        for some in self._parts(wanted):
            for outcome in session.run(outcomes_of(some)):
                if outcome.has_ended:
                    self._jobs.end(outcome)
                elif not outcome.is_awaited:
                    unmarked.add(outcome.job_id)
        if session.is_deaf:
            return
        self._unmarked = set(self._jobs.watched((self._unmarked - set(wanted)) | unmarked))
        if not self._unmarked:
            self._mark_at, self._mark_pause = math.inf, MARK_AGAIN_SECONDS
        elif now >= self._mark_at or math.isinf(self._mark_at):
            self._mark_at = now + self._mark_pause
            self._mark_pause = min(2 * self._mark_pause, POLL_SECONDS)

    def _wait(self, session: ListeningSession) -> None:
        until = self._used_at + LINGER_SECONDS
        if self._jobs.watched():
            until = min(self._poll_at, self._mark_at)
        for payload in session.wait(self._wakeup, until - time.monotonic()):
            with contextlib.suppress(ValueError):  # any account may notify
                self._notified.add(UUID(payload))

    def _pause_after(self, error: FaultlineError | DriverError) -> None:
        self._close()
        if was_unanswered(error):  # large results take their time
            self._batch_size = max(1, self._batch_size // 8)
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if not is_transient(error) or now - self._failing_since > OUTAGE_SECONDS:
            self._jobs.fail(error if isinstance(error, FaultlineError) else explain_error(error))
            return
        with selectors.DefaultSelector() as selector:  # a sleep that `close` ends
            selector.register(self._wakeup, selectors.EVENT_READ)
            if selector.select(self._backoff.next_pause()):
                self._wakeup.recv(4096)

    def _parts(self, job_ids: list[UUID]) -> Iterator[list[UUID]]:
        for start in range(0, len(job_ids), self._batch_size):
            yield job_ids[start : start + self._batch_size]

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
