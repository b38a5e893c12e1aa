"""The worker: claims jobs for its free slots, runs them, and leaves nothing behind when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from faultline import protocol
from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.database import (
    AsyncConnection,
    Pool,
    Session,
    make_async_pool,
    make_pool,
    run_async,
)
from faultline.errors import FaultlineError, StaleLease
from faultline.events import Event, emit, log
from faultline.link import Link, OnConnect, is_transient
from faultline.model import Claim
from faultline.workers.attempt import AbortCause
from faultline.workers.committer import Committer
from faultline.workers.executor import Executor, Tools
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import Lease, LeaseBook, steady_now
from faultline.workers.listener import Listener
from faultline.workers.sentinel import Sentinel

Companion = Callable[[], Coroutine[Any, Any, None]]

_CLAIM_BATCH = 500
_ABORT_GRACE_SECONDS = 5.0


class Worker:
    """Runs until `stop` is called: once to finish what is running, twice to hand it back at once."""

    def __init__(
        self, app: Faultline, settings: WorkerSettings, *, companions: Sequence[Companion] = ()
    ) -> None:
        self._app = app
        self._settings = settings
        self._companions = companions
        self._url = app.database_url
        self._check_tasks()
        self._book = LeaseBook()
        self._heartbeat = Heartbeat(self._url, settings, self._book)
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._wake = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._started = 0
        self._pool: Pool | None = None
        self._claims = self._make_link("worker", on_connect=self._register)

    def _check_tasks(self) -> None:
        for task in self._app.tasks.values():
            if task.options.lease_seconds is not None:
                what = f"lease_seconds of {task.name}"
                self._settings.check_lease(task.options.lease_seconds, what)

    def _make_link(self, purpose: str, *, on_connect: OnConnect | None = None) -> Link:
        return Link(self._url, purpose=purpose, on_connect=on_connect)

    def stop(self) -> None:
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()
        self._wake.set()

    async def run(self) -> bool:
        """Work until stopped. False when a thread of a handler could not be ended."""
        settings = self._settings
        committer_link = self._make_link("committer")
        committer = Committer(
            committer_link, batch_size=settings.commit_batch, on_flushed=self._wake.set
        )
        threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="faultline-handler")
        async_pool = make_async_pool(
            self._url, max_size=settings.concurrency, application_name="faultline handler"
        )
        listener = Listener(self._make_link, settings.queues, self._wake.set)
        sentinel = Sentinel(
            self._book,
            margin_seconds=settings.fence_margin_seconds,
            shortest_lease=self._shortest_lease(),
        )
        tools = Tools(
            app=self._app,
            settings=settings,
            book=self._book,
            committer=committer,
            make_link=self._make_link,
            threads=threads,
            pool=self._open_pool,
            async_pool=async_pool,
            spawn=self._spawn,
            wake_in=self._wake_in,
        )
        executor = Executor(tools)
        await async_pool.open()
        await self._first_connection()
        if settings.self_fencing:
            sentinel.start()
        background = [
            asyncio.create_task(service())
            for service in (committer.run, listener.run, *self._companions)
        ]
        try:
            await self._claim_until_stopped(executor, committer, background)
            stuck = await self._drain(executor, committer)
        finally:
            for service in background:
                service.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            self._heartbeat.stop()
            sentinel.stop()
            await self._say_goodbye()
            for link in (self._claims, committer_link, listener, executor):
                await link.close()
            await async_pool.close()
            if self._pool is not None:
                self._pool.close()
            threads.shutdown(wait=False)
        emit(
            Event.WORKER_STOPPED, worker=settings.worker_id, jobs=self._started, stuck_threads=stuck
        )
        return stuck == 0

    def _shortest_lease(self) -> float:
        own = [task.options.lease_seconds for task in self._app.tasks.values()]
        return min([self._settings.lease_seconds, *(lease for lease in own if lease is not None)])

    def _open_pool(self) -> Pool:
        """For plain handlers; called in their threads."""
        if self._pool is None:
            pool = make_pool(
                self._url,
                max_size=self._settings.concurrency,
                application_name="faultline handler",
            )
            pool.open()
            self._pool = pool
        return self._pool

    # ── registration ─────────────────────────────────────────────────────────────────────────────

    async def _first_connection(self) -> None:
        """At start a wrong schema is an error, and a missing server one to wait for."""
        while not self._stopping.is_set():
            try:
                await self._claims.connection()
                return
            except FaultlineError as error:
                if not is_transient(error):
                    raise
                await self._claims.pause(error, stop=self._stopping)

    async def _register(self, conn: AsyncConnection, session: Session) -> None:
        settings = self._settings
        statement = protocol.register_worker(
            settings.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=settings.queues,
            holds_locks=not session.is_pooled,
        )
        lock_key = await run_async(conn, statement)
        if not self._heartbeat.is_started:
            self._heartbeat.start(lock_key=lock_key)
            emit(
                Event.WORKER_STARTED,
                worker=settings.worker_id,
                queues=list(settings.queues),
                concurrency=settings.concurrency,
                lease_seconds=settings.lease_seconds,
                recovery_after_crash_seconds=settings.recovery_after_crash_seconds,
                recovery_after_silence_seconds=settings.recovery_after_silence_seconds,
            )
        # A claim whose answer was lost left us leases that we do not know of.
        for claim in await run_async(conn, protocol.leases_of(settings.worker_id)):
            if claim not in self._book:
                with contextlib.suppress(StaleLease):
                    await run_async(conn, protocol.release(claim))

    async def _say_goodbye(self) -> None:
        try:
            await self._claims.run(protocol.deregister_worker(self._settings.worker_id))
        except (FaultlineError, psycopg.Error) as error:
            if not is_transient(error):
                raise

    # ── claiming ─────────────────────────────────────────────────────────────────────────────────

    async def _claim_until_stopped(
        self, executor: Executor, committer: Committer, background: list[asyncio.Task[None]]
    ) -> None:
        settings = self._settings
        while not self._stopping.is_set():
            for service in background:
                if service.done():
                    service.result()  # a service never ends by itself: this raises what ended it
            self._wake.clear()
            wanted = self._free_slots(committer)
            if wanted > 0:
                try:
                    claims = await self._claim(wanted)
                except (FaultlineError, psycopg.Error) as error:
                    if not is_transient(error):
                        raise
                    await self._claims.pause(error, stop=self._stopping)
                    continue
                for lease in claims:
                    self._start(executor, lease)
                if len(claims) == wanted:
                    continue
            if settings.max_jobs and self._started >= settings.max_jobs and not self._running:
                return
            await self._wait_for_work()

    def _free_slots(self, committer: Committer) -> int:
        settings = self._settings
        free = settings.concurrency - len(self._running)
        if committer.pending > max(settings.commit_batch, settings.concurrency):
            return 0  # the database is slower than the handlers: do not pile up leases
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
        claims = await self._claims.run(statement)
        return [self._take(claim, sent_at) for claim in claims]

    def _take(self, claim: Claim, sent_at: float) -> Lease:
        task = self._app.tasks.get(claim.task)
        lease_seconds = self._settings.lease_seconds
        lease = Lease(claim, sent_at=sent_at, lease_seconds=lease_seconds)
        if task is not None and task.options.lease_seconds not in (None, lease_seconds):
            lease.lease_seconds = task.options.lease_seconds
            self._heartbeat.beat_now()
        self._book.add(lease)
        if log.is_verbose:
            emit(
                Event.LEASE_ACQUIRED,
                job_id=str(claim.job_id),
                token=claim.fencing_token,
                task=claim.task,
                worker=self._settings.worker_id,
            )
        return lease

    def _start(self, executor: Executor, lease: Lease) -> None:
        """Run it, or hand it back at once when the worker was told to stop while it was claimed."""
        if self._stopping.is_set():
            self._spawn(executor.release(lease))
        else:
            self._started += 1
            self._spawn(executor.run(lease))

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
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────

    async def _drain(self, executor: Executor, committer: Committer) -> int:
        """Let running attempts finish, then hand the rest back; heartbeats go on until the end.

        Returns how many handlers' threads could not be ended.
        """
        settings = self._settings
        emit(Event.WORKER_DRAINING, worker=settings.worker_id, running=len(self._running))
        if self._running:
            self._spawn(self._mark_draining())
        await self._finish_running(settings.drain_seconds)
        for attempt in tuple(executor.attempts):
            attempt.abort(AbortCause.DRAIN)
        await self._finish_running(_ABORT_GRACE_SECONDS, hurry=False)
        stuck = len(executor.attempts)
        with contextlib.suppress(TimeoutError):  # the database is away: what is left will run again
            await asyncio.wait_for(committer.drained(), settings.lease_seconds)
        await self._finish_running(_ABORT_GRACE_SECONDS, hurry=False)
        for task in tuple(self._running):
            task.cancel()
        return stuck

    async def _finish_running(self, timeout_seconds: float, *, hurry: bool = True) -> None:
        hurrying = asyncio.create_task(self._hurrying.wait())
        deadline = steady_now() + timeout_seconds
        try:
            while self._running and (remaining := deadline - steady_now()) > 0:
                if hurry and self._hurrying.is_set():
                    return
                await asyncio.wait(
                    {*self._running, hurrying} if hurry else self._running,
                    timeout=remaining,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            hurrying.cancel()

    async def _mark_draining(self) -> None:
        try:
            await self._claims.run(protocol.drain_worker(self._settings.worker_id))
        except (FaultlineError, psycopg.Error) as error:
            if not is_transient(error):
                raise
