"""The worker: claims jobs for its free slots, runs them, and leaves nothing behind when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.health.report import Vitals
from faultline.metrics import meter
from faultline.model import Claim
from faultline.postgres.driver import DriverError
from faultline.postgres.outage import outage_of
from faultline.postgres.reconnecting import OnConnect, ReconnectingSession, is_transient
from faultline.postgres.sessions import AsyncConnection, Place, place_of
from faultline.statements.session_settings import Session
from faultline.steady import steady_now
from faultline.task import DEFAULT_RETRY
from faultline.workers.attempt import AbortCause
from faultline.workers.blame import Blame
from faultline.workers.bounded_calls import BoundedCalls, NoReply
from faultline.workers.claiming import Claiming
from faultline.workers.committer import Committer
from faultline.workers.execution import Execution
from faultline.workers.handler_resources import HandlerResources
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import Lease, LeaseBook
from faultline.workers.listener import Listener
from faultline.workers.loop_watch import LoopWatch
from faultline.workers.outcomes import Outcomes
from faultline.workers.pace import Pace
from faultline.workers.readiness import Readiness
from faultline.workers.registration import Registration
from faultline.workers.self_fencing import SelfFencing
from faultline.workers.slots import Slots
from faultline.workers.takeovers import Takeovers
from faultline.workers.unknown_tasks import UnknownTasks

T = TypeVar("T")
Companion = Callable[[], Coroutine[Any, Any, None]]

_CLAIM_BATCH = 500
_ABORT_GRACE_SECONDS = 3.0
_FAREWELL_SECONDS = 1.0  # for what serves the worker, and may be waiting for the database
# For a claim that is under way when the worker is told to stop. Then it is left to itself.
_LAST_CLAIM_SECONDS = 1.0


class Worker:
    """Runs until `stop` is called: once to finish what is running, twice to hand it back at once.

    An operator's request ends it like the first call of `stop`; `was_asked` says so afterwards.
    """

    def __init__(
        self,
        app: Faultline,
        settings: WorkerSettings,
        *,
        companions: Sequence[Companion] = (),
        end_process: Callable[[], object] | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._url = app.database_url
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._is_told = False  # by a signal
        self.was_asked = False  # by an operator
        self._has_failed = False
        self.is_stuck = False  # it ended by an error, and a handler could not be ended
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._pace = Pace(most_ahead=settings.claim_ahead)
        self._hands = Slots(
            settings.concurrency,
            run=lambda lease: self._executor.run(lease),
            release=lambda lease: self._settlement.release(lease),
            on_ended=self._pace.job_ended,
            wake=self._wake.set,
        )
        self._book = LeaseBook()
        self._talks = BoundedCalls(self._stopping)
        self._watch = LoopWatch(
            settings,
            book=self._book,
            attempts=lambda: self._executor.attempts,
            retry_seconds=self._retry_seconds,
            end_process=end_process,
        )
        self._heartbeat = Heartbeat(
            self._url,
            settings,
            self._book,
            on_drain=self._hear_request,
            may_renew=self._watch.may_renew,
        )
        self._readiness = Readiness(self._heartbeat, patience_seconds=settings.lease_seconds)
        self._sentinel = SelfFencing(
            self._book,
            margin_seconds=settings.fence_margin_seconds,
            shortest_lease=self._shortest_lease(),
        )
        self._registration = Registration(settings, self._book, self._heartbeat, self._talks)
        self._place: Place | None = None  # where the control session leads, or led last
        self._control = self._make_control()
        self._left_behind: list[
            ReconnectingSession
        ] = []  # sessions in which a talk was not answered
        self._committer = Committer(
            self._make_link("committer"),
            batch_size=settings.commit_batch,
            on_flushed=self._wake.set,
        )
        self._unknown_tasks = UnknownTasks()
        self._settlement = Outcomes(
            settings.worker_id,
            book=self._book,
            committer=self._committer,
            make_link=self._make_link,
            spawn=self._hands.do,
            retry_seconds=self._retry_seconds,
            wake_in=self._wake_in,
            unknown_tasks=self._unknown_tasks,
        )
        self._tools = HandlerResources(self._url, concurrency=settings.concurrency)
        self._executor = Execution(
            app,
            self._settlement,
            self._tools,
            self_fencing=settings.self_fencing,
            spawn=self._hands.do,
            is_leaving=lambda: self._hands.are_closed,
            blame=Blame(outage_of(self._url), lambda: self._control),
        )
        self._listener = Listener(
            self._make_link,
            settings.queues,
            settings.worker_id,
            wake=self._wake.set,
            called=self._heartbeat.beat_now,
        )
        self._takeovers = Takeovers(self._make_link("takeovers"), spawn=self._hands.do)
        self._claimer = Claiming(
            app,
            settings,
            book=self._book,
            heartbeat=self._heartbeat,
            settlement=self._settlement,
            takeovers=self._takeovers,
            unknown_tasks=self._unknown_tasks,
            spawn=self._hands.do,
        )
        self._services = (self._committer.run, self._listener.run, *companions)

    def _make_link(
        self, purpose: str, *, on_connect: OnConnect | None = None
    ) -> ReconnectingSession:
        limit = self._settings.answer_seconds
        return ReconnectingSession(
            self._url, purpose=purpose, on_connect=on_connect, answer_seconds=limit
        )

    def _make_control(self) -> ReconnectingSession:
        """The session that claims, and that registers the worker whenever it is opened."""
        return self._make_link("worker", on_connect=self._register)

    async def _register(self, conn: AsyncConnection, session: Session) -> None:
        """Also end the handlers' sessions with the server that this one has left."""
        await self._registration.renew(conn, session)
        left, self._place = self._place, place_of(conn)
        if left is not None and left != self._place:
            await self._tools.leave(left)
            for attempt in tuple(self._executor.attempts):
                attempt.job._cut_from(left)

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
        if self._is_told:
            self._hurrying.set()
        self._is_told = True
        self._leave()

    def _leave(self) -> None:
        self._stopping.set()
        self._hands.close()
        self._wake.set()

    def stop_requested(self) -> None:
        """`stop` is about to be called; bounds that even if the loop is blocked. From any thread."""
        self._watch.stop_requested(by_signal=True)

    def _hear_request(self) -> None:
        """Called by the heartbeat's thread."""
        self.was_asked = True
        self._watch.stop_requested(by_signal=False)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._heed_request)

    def _heed_request(self) -> None:
        self.was_asked = True
        self._leave()

    def vitals(self) -> Vitals:
        """May be called from any thread."""
        return Vitals(
            name=f"worker {self._settings.worker_id}",
            doing=f"{self._hands.running} of {self._settings.concurrency} slots are busy",
            unready=self._readiness.why_not(is_leaving=self._stopping.is_set()),
            heartbeat_has_ended=self._heartbeat.has_ended,
            heartbeat_due_at=self._heartbeat.due_at,
            unanswered=self._readiness.why_unanswered(),
        )

    async def run(self) -> bool:
        """Work until stopped. False when a handler's thread could not be ended."""
        self._loop = asyncio.get_running_loop()
        services: list[asyncio.Task[None]] = []
        try:
            await self._tools.open()
            meter.current.expect(self._settings.queues)
            await self._first_connection()
            if self._settings.self_fencing:
                self._sentinel.start()
            self._watch.start(self._heartbeat)
            services += [asyncio.create_task(service()) for service in self._services]
            stuck = await self._work_and_drain(services)
        finally:
            await self._close(services)
        emit(
            Event.WORKER_STOPPED,
            worker=self._settings.worker_id,
            jobs=self._hands.started,
            stuck_threads=stuck,
        )
        return stuck == 0

    async def _close(self, services: Sequence[asyncio.Task[None]]) -> None:
        """End and close everything, also when one of the steps is cancelled or fails."""
        parts = (
            self._control,
            self._committer,
            self._listener,
            self._settlement,
            self._takeovers,
            self._tools,
        )
        async with contextlib.AsyncExitStack() as steps:  # the last one pushed is the first to run
            steps.callback(self._flush_metrics)
            for part in reversed(parts):
                steps.push_async_callback(part.close)
            steps.push_async_callback(self._close_left_behind)
            steps.push_async_callback(self._talks.close)
            steps.push_async_callback(self._stop_heartbeat)
            await _end(services)

    async def _stop_heartbeat(self) -> None:
        self._watch.stop()
        is_heard = self._heartbeat.stop(_FAREWELL_SECONDS)
        self._sentinel.stop()
        if self._heartbeat.is_started and is_heard:
            await self._registration.remove(self._control)

    async def _close_left_behind(self) -> None:
        for link in self._left_behind:
            await link.close()

    def _flush_metrics(self) -> None:
        meter.current.flush(steady_now(), running=self._hands.running)

    async def _first_connection(self) -> None:
        """At start a wrong schema is an error, and a missing server one to wait for."""
        while not self._stopping.is_set():
            try:
                await self._unless_stopped(self._control.connection())
                return
            except NoReply:
                return
            except (FaultlineError, DriverError) as error:
                if not is_transient(error):
                    raise
                await self._control.pause(error, stop=self._stopping)

    async def _work_and_drain(self, services: list[asyncio.Task[None]]) -> int:
        """An error of the worker's own ends it too, and is no fault of the jobs that run."""
        try:
            await self._claim_until_stopped(services)
        except Exception:
            self._has_failed = True
            self._leave()
            self.is_stuck = await self._drain() > 0
            raise
        return await self._drain()

    async def _unless_stopped(self, talk: Coroutine[Any, Any, T]) -> T:
        """Whether an unanswered talk took effect nobody knows: the next session will look."""
        try:
            return await self._talks.unless_stopped(talk, grace_seconds=_LAST_CLAIM_SECONDS)
        except NoReply:
            self._left_behind.append(self._control)
            self._control = self._make_control()
            raise

    # ── claiming ─────────────────────────────────────────────────────────────────────────────────

    async def _claim_until_stopped(self, services: list[asyncio.Task[None]]) -> None:
        limit = self._settings.max_jobs
        while not self._stopping.is_set():
            for service in services:
                if service.done():
                    service.result()  # raises what ended it
            self._wake.clear()
            meter.current.flush(steady_now(), running=self._hands.running)
            self._hands.hand_back_overdue()
            wanted = self._wanted()
            if wanted > 0:
                try:
                    leases = await self._unless_stopped(self._claim(wanted))
                except NoReply:
                    return
                except (FaultlineError, DriverError) as error:
                    if not is_transient(error):
                        raise
                    await self._control.pause(error, stop=self._stopping)
                    continue
                self._hands.take(leases)
                if len(leases) == wanted:
                    continue
                meter.current.flush(steady_now(), running=self._hands.running)
            if limit and self._hands.started >= limit and not self._hands.running:
                return
            await self._wait_for_work()

    def _wanted(self) -> int:
        """How many jobs to claim now: for the free slots, and for those that will soon be free."""
        settings = self._settings
        if self._claimer.is_deferring:
            return 0  # the next claim could be of the same unknown tasks
        if self._committer.pending > 2 * settings.commit_batch:
            return 0  # the database is slower than the handlers: do not pile up leases
        ahead = self._pace.jobs_ahead(steady_now())
        waiting = self._hands.waiting
        if waiting > ahead // 2:
            return 0  # enough for now; a larger claim costs each job less
        wanted = settings.concurrency - self._hands.running + ahead - waiting
        if settings.max_jobs:
            wanted = min(wanted, settings.max_jobs - self._hands.started - waiting)
        return min(wanted, _CLAIM_BATCH)

    async def _claim(self, wanted: int) -> list[Lease]:
        is_answered = False
        self._readiness.claim_begins()
        try:
            leases = await self._claimer.claim(self._control, wanted)
            is_answered = True
        finally:
            self._readiness.claim_ends(is_answered=is_answered)
        return leases

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
        meter.current.flush(steady_now(), running=self._hands.running)
        emit(
            Event.WORKER_DRAINING,
            worker=self._settings.worker_id,
            running=self._hands.running,
            cause=self._why_it_leaves(),
        )
        self._hands.close()
        if self._heartbeat.is_started and (self._hands.running or self._left_behind):
            self._hands.do(self._registration.mark_draining(self._control))
        await self._hands.finish(self._settings.drain_seconds, unless=self._hurrying)
        for attempt in tuple(self._executor.attempts):
            attempt.abort(AbortCause.DRAIN)
        await self._hands.finish(_ABORT_GRACE_SECONDS)
        stuck = self._stuck_handlers()
        with contextlib.suppress(TimeoutError):  # the database is away: what is left will run again
            await asyncio.wait_for(self._committer.drained(), _ABORT_GRACE_SECONDS)
        await self._hands.finish(0 if stuck else _ABORT_GRACE_SECONDS)
        self._tools.is_closing = True
        self._hands.drop()
        return stuck

    def _stuck_handlers(self) -> int:
        """How many cannot be ended; logs where each of them is."""
        stuck = [attempt for attempt in self._executor.attempts if attempt.is_running]
        for attempt in stuck:
            stack = attempt.stack()
            self._settlement.say(
                Event.DEGRADED,
                attempt.lease,
                reason="a handler could not be ended: the process ends without it",
                task=attempt.task.name,
                frame=None if stack is None else stack.frame,
                stack=None if stack is None else stack.text,
            )
        return len(stuck)

    def _why_it_leaves(self) -> str:
        if self._has_failed:
            return "error"
        return "signal" if self._is_told else "request" if self.was_asked else "done"


async def _end(services: Sequence[asyncio.Task[None]]) -> None:
    """Cancel them; and once more, in case the driver asks a server out of reach to cancel as well."""
    for _ in range(2):
        for service in services:
            service.cancel()
        with contextlib.suppress(TimeoutError):
            ended = asyncio.gather(*services, return_exceptions=True)
            await asyncio.wait_for(asyncio.shield(ended), _FAREWELL_SECONDS)
            return
