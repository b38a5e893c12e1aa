"""The worker: claims jobs for its free slots, runs them, and leaves nothing behind when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import psycopg

from faultline import protocol
from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.events import Event, emit, log
from faultline.link import Link, OnConnect, is_transient
from faultline.model import Claim
from faultline.task import DEFAULT_RETRY
from faultline.workers.attempt import AbortCause
from faultline.workers.committer import Committer
from faultline.workers.executor import Executor
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import Lease, LeaseBook, steady_now
from faultline.workers.listener import Listener
from faultline.workers.registration import Registration
from faultline.workers.sentinel import Sentinel
from faultline.workers.settlement import Settlement
from faultline.workers.tools import Tools

Companion = Callable[[], Coroutine[Any, Any, None]]

_CLAIM_BATCH = 500
_ABORT_GRACE_SECONDS = 3.0


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
        self._running: set[asyncio.Task[None]] = set()
        self._started = 0
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
            spawn=self._spawn,
            retry_seconds=self._retry_seconds,
            wake_in=self._wake_in,
        )
        self._tools = Tools(self._url, concurrency=settings.concurrency)
        self._executor = Executor(
            app, self._settlement, self._tools, self_fencing=settings.self_fencing
        )
        self._listener = Listener(self._make_link, settings.queues, self._wake.set)
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
                self._tools,
            ):
                await part.close()
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
            wanted = self._free_slots()
            if wanted > 0:
                try:
                    leases = await self._claim(wanted)
                except (FaultlineError, psycopg.Error) as error:
                    if not is_transient(error):
                        raise
                    await self._claims.pause(error, stop=self._stopping)
                    continue
                for lease in leases:
                    self._start(lease)
                if len(leases) == wanted:
                    continue
            if limit and self._started >= limit and not self._running:
                return
            await self._wait_for_work()

    def _free_slots(self) -> int:
        settings = self._settings
        if self._committer.pending > max(settings.commit_batch, settings.concurrency):
            return 0  # the database is slower than the handlers: do not pile up leases
        free = settings.concurrency - len(self._running)
        if settings.max_jobs:
            free = min(free, settings.max_jobs - self._started)
        return min(free, _CLAIM_BATCH)

    async def _claim(self, wanted: int) -> list[Lease]:
        settings = self._settings
        sent_at = steady_now()
        statement = protocol.claim(
            settings.worker_id,
            settings.queues,
            batch_size=wanted,
            lease_seconds=settings.lease_seconds,
        )
        return [self._take(claim, sent_at) for claim in await self._claims.run(statement)]

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

    def _start(self, lease: Lease) -> None:
        """Run it, or hand it back at once when the worker was told to stop while it was claimed."""
        if self._stopping.is_set():
            self._spawn(self._settlement.release(lease))
        else:
            self._started += 1
            self._spawn(self._executor.run(lease))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()
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
        if self._running:
            self._spawn(self._registration.mark_draining(self._claims))
        await self._finish_running(self._settings.drain_seconds, unless=self._hurrying)
        for attempt in tuple(self._executor.attempts):
            attempt.abort(AbortCause.DRAIN)
        await self._finish_running(_ABORT_GRACE_SECONDS)
        stuck = len(self._executor.attempts)
        with contextlib.suppress(TimeoutError):  # the database is away: what is left will run again
            await asyncio.wait_for(self._committer.drained(), _ABORT_GRACE_SECONDS)
        await self._finish_running(0 if stuck else _ABORT_GRACE_SECONDS)
        for task in tuple(self._running):
            task.cancel()
        return stuck

    async def _finish_running(
        self, timeout_seconds: float, *, unless: asyncio.Event | None = None
    ) -> None:
        """Wait until nothing runs any more, or the time is up, or `unless` is set."""
        interruption = asyncio.create_task((unless or asyncio.Event()).wait())
        deadline = steady_now() + timeout_seconds
        while self._running and not interruption.done() and (left := deadline - steady_now()) > 0:
            awaited = {*self._running, interruption}
            await asyncio.wait(awaited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        interruption.cancel()
