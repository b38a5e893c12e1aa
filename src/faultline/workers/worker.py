"""The worker: claims jobs for its free slots, runs them, and leaves nothing behind when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import psycopg

from faultline import protocol
from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.events import Event, emit, log
from faultline.link import Link, OnConnect, is_transient
from faultline.metrics import meter
from faultline.model import Claim
from faultline.task import DEFAULT_RETRY
from faultline.tracing import tracing
from faultline.workers.attempt import AbortCause
from faultline.workers.bookmark import Bookmark
from faultline.workers.committer import Committer
from faultline.workers.executor import Executor
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import Lease, LeaseBook, steady_now
from faultline.workers.listener import Listener
from faultline.workers.pace import Pace
from faultline.workers.registration import Registration
from faultline.workers.sentinel import Sentinel
from faultline.workers.settlement import Settlement
from faultline.workers.takeovers import Takeovers
from faultline.workers.tools import Tools

Companion = Callable[[], Coroutine[Any, Any, None]]

_CLAIM_BATCH = 500
_ABORT_GRACE_SECONDS = 3.0
# What was claimed ahead and has not been started by then is handed back, for others to run.
_PATIENCE_SECONDS = 0.5


class Worker:
    """Runs until `stop` is called: once to finish what is running, twice to hand it back at once."""

    def __init__(
        self, app: Faultline, settings: WorkerSettings, *, companions: Sequence[Companion] = ()
    ) -> None:
        self._app = app
        self._settings = settings
        self._url = app.database_url
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._wake = asyncio.Event()
        self._backlog: deque[Lease] = deque()  # claimed ahead, waiting for a slot
        self._running: set[asyncio.Task[None]] = set()
        self._chores: set[asyncio.Task[None]] = set()  # ends that are being written down
        self._started = 0
        self._bookmark = Bookmark()
        self._pace = Pace(most_ahead=settings.claim_ahead)
        self._book = LeaseBook()
        self._heartbeat = Heartbeat(self._url, settings, self._book)
        self._sentinel = Sentinel(
            self._book,
            margin_seconds=settings.fence_margin_seconds,
            shortest_lease=self._shortest_lease(),
        )
        self._registration = Registration(settings, self._book, self._heartbeat)
        self._claims = self._make_link("worker", on_connect=self._registration.renew)
        self._committer = Committer(
            self._make_link("committer"),
            batch_size=settings.commit_batch,
            on_flushed=self._wake.set,
        )
        self._settlement = Settlement(
            settings.worker_id,
            book=self._book,
            committer=self._committer,
            make_link=self._make_link,
            spawn=self._do,
            retry_seconds=self._retry_seconds,
            wake_in=self._wake_in,
        )
        self._tools = Tools(self._url, concurrency=settings.concurrency)
        self._executor = Executor(
            app,
            self._settlement,
            self._tools,
            self_fencing=settings.self_fencing,
            spawn=self._do,
        )
        self._listener = Listener(self._make_link, settings.queues, self._wake.set)
        self._takeovers = Takeovers(self._make_link("takeovers"), spawn=self._do)
        self._services = (self._committer.run, self._listener.run, *companions)

    def _make_link(self, purpose: str, *, on_connect: OnConnect | None = None) -> Link:
        return Link(self._url, purpose=purpose, on_connect=on_connect)

    def _shortest_lease(self) -> float:
        """The shortest of all tasks' leases; one that heartbeats cannot keep alive is refused."""
        shortest = self._settings.lease_seconds
        for task in self._app.tasks.values():
            if (own := task.options.lease_seconds) is not None:
                self._settings.check_lease(own, f"lease_seconds of {task.name}")
                shortest = min(shortest, own)
        return shortest

    def _retry_seconds(self, claim: Claim) -> float:
        task = self._app.tasks.get(claim.task)
        policy = DEFAULT_RETRY if task is None else task.options.retry
        return policy.delay_seconds(claim.attempt)

    def stop(self) -> None:
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()
        self._wake.set()

    async def run(self) -> bool:
        """Work until stopped. False when a handler's thread could not be ended."""
        await self._tools.open()
        meter.current.expect(self._settings.queues)
        await self._first_connection()
        if self._settings.self_fencing:
            self._sentinel.start()
        services = [asyncio.create_task(service()) for service in self._services]
        try:
            await self._claim_until_stopped(services)
            stuck = await self._drain()
        finally:
            for service in services:
                service.cancel()
            await asyncio.gather(*services, return_exceptions=True)
            self._heartbeat.stop()
            self._sentinel.stop()
            await self._registration.remove(self._claims)
            for part in (
                self._claims,
                self._committer,
                self._listener,
                self._settlement,
                self._takeovers,
                self._tools,
            ):
                await part.close()
            meter.current.flush(steady_now(), running=len(self._running))
        emit(
            Event.WORKER_STOPPED,
            worker=self._settings.worker_id,
            jobs=self._started,
            stuck_threads=stuck,
        )
        return stuck == 0

    async def _first_connection(self) -> None:
        """At start a wrong schema is an error, and a missing server one to wait for."""
        while not self._stopping.is_set():
            try:
                await self._claims.connection()
                return
            except (FaultlineError, psycopg.Error) as error:
                if not is_transient(error):
                    raise
                await self._claims.pause(error, stop=self._stopping)

    # ── claiming ─────────────────────────────────────────────────────────────────────────────────

    async def _claim_until_stopped(self, services: list[asyncio.Task[None]]) -> None:
        limit = self._settings.max_jobs
        while not self._stopping.is_set():
            for service in services:
                if service.done():
                    service.result()  # raises what ended it
            self._wake.clear()
            meter.current.flush(steady_now(), running=len(self._running))
            self._hand_back_overdue()
            wanted = self._wanted()
            if wanted > 0:
                try:
                    leases = await self._claim(wanted)
                except (FaultlineError, psycopg.Error) as error:
                    if not is_transient(error):
                        raise
                    await self._claims.pause(error, stop=self._stopping)
                    continue
                self._backlog.extend(leases)
                self._fill_slots()
                if len(leases) == wanted:
                    continue
                meter.current.flush(steady_now(), running=len(self._running))
            if limit and self._started >= limit and not self._running:
                return
            await self._wait_for_work()

    def _wanted(self) -> int:
        """How many jobs to claim now: for the free slots, and for those that will soon be free."""
        settings = self._settings
        if self._committer.pending > 2 * settings.commit_batch:
            return 0  # the database is slower than the handlers: do not pile up leases
        ahead = self._pace.jobs_ahead(steady_now())
        waiting = len(self._backlog)
        if waiting > ahead // 2:
            return 0  # enough for now; a larger claim costs each job less
        wanted = settings.concurrency - len(self._running) + ahead - waiting
        if settings.max_jobs:
            wanted = min(wanted, settings.max_jobs - self._started - waiting)
        return min(wanted, _CLAIM_BATCH)

    async def _claim(self, wanted: int) -> list[Lease]:
        settings = self._settings
        sent_at = steady_now()
        spans = tracing.look()
        began_ns = 0 if spans is None else time.time_ns()
        past = self._bookmark.past(sent_at)
        statement = protocol.claim(
            settings.worker_id,
            settings.queues,
            batch_size=wanted,
            lease_seconds=settings.lease_seconds,
            past=past,
        )
        claims = await self._claims.run(statement)
        answered_at = steady_now()
        self._bookmark.advance(
            claims,
            was_full=past is None or len(claims) < wanted,
            began=sent_at,
            ended=answered_at,
        )
        meter.current.claimed(claims, answered_at - sent_at)
        if meter.current.is_on:
            self._takeovers.look_among(claims)
        leases = [self._take(claim, sent_at) for claim in claims]
        if spans is not None and claims:
            traces = spans.claimed(claims, settings.worker_id, began_ns) or ()
            for lease, trace in zip(leases, traces, strict=False):
                lease.trace = trace
        return leases

    def _take(self, claim: Claim, sent_at: float) -> Lease:
        task = self._app.tasks.get(claim.task)
        lease = Lease(claim, sent_at=sent_at, lease_seconds=self._settings.lease_seconds)
        own = None if task is None else task.options.lease_seconds
        if own is not None and own != lease.lease_seconds:
            lease.lease_seconds = own
            lease.deadline = min(lease.deadline, sent_at + own)
        self._book.add(lease)
        if lease.lease_seconds != self._settings.lease_seconds:
            self._heartbeat.beat_now()
        if log.is_verbose:
            self._settlement.say(Event.LEASE_ACQUIRED, lease, task=claim.task)
        return lease

    def _fill_slots(self) -> None:
        """Start what waits, or hand it back when the worker was told to stop while it was claimed."""
        backlog, running, free = self._backlog, self._running, self._settings.concurrency
        if self._stopping.is_set():
            self._hand_back()
        while backlog and len(running) < free:
            self._started += 1
            task = asyncio.create_task(self._executor.run(backlog.popleft()))
            running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._pace.job_ended()
        if self._backlog:
            self._fill_slots()
        self._wake.set()
        self._see(task)

    def _hand_back_overdue(self) -> None:
        """The jobs have become slower than those before them: another worker may be free."""
        if self._backlog and steady_now() > self._backlog[0].taken_at + _PATIENCE_SECONDS:
            self._hand_back()

    def _hand_back(self) -> None:
        while self._backlog:
            self._do(self._settlement.release(self._backlog.popleft()))

    def _do(self, chore: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._chores.discard(task)
        self._wake.set()
        self._see(task)

    @staticmethod
    def _see(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "an attempt ended in an error of the worker's own", "exception": error}
            )

    def _wake_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + 0.001, self._wake.set)

    async def _wait_for_work(self) -> None:
        seconds = self._settings.poll_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spread
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────

    async def _drain(self) -> int:
        """Let running attempts finish, then hand the rest back; heartbeats go on until the end.

        Returns how many handlers' threads could not be ended.
        """
        emit(Event.WORKER_DRAINING, worker=self._settings.worker_id, running=len(self._running))
        self._hand_back()
        if self._running:
            self._do(self._registration.mark_draining(self._claims))
        await self._finish(self._settings.drain_seconds, unless=self._hurrying)
        for attempt in tuple(self._executor.attempts):
            attempt.abort(AbortCause.DRAIN)
        await self._finish(_ABORT_GRACE_SECONDS)
        stuck = len(self._executor.attempts)
        with contextlib.suppress(TimeoutError):  # the database is away: what is left will run again
            await asyncio.wait_for(self._committer.drained(), _ABORT_GRACE_SECONDS)
        await self._finish(0 if stuck else _ABORT_GRACE_SECONDS)
        self._tools.is_closing = True
        for task in (*self._running, *self._chores):
            task.cancel()
        return stuck

    async def _finish(self, timeout_seconds: float, *, unless: asyncio.Event | None = None) -> None:
        """Wait until nothing is under way any more, or the time is up, or `unless` is set."""
        interruption = asyncio.create_task((unless or asyncio.Event()).wait())
        deadline = steady_now() + timeout_seconds
        while (left := deadline - steady_now()) > 0 and not interruption.done():
            under_way = self._running | self._chores
            if not under_way:
                break
            meter.current.flush(steady_now(), running=len(self._running))
            await asyncio.wait(
                {*under_way, interruption}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
        interruption.cancel()
