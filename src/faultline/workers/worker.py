"""The worker: starts its parts, runs until stopped, drains, closes everything.

A job passes claiming → slots → execution → outcomes → committer. Each part passes it on to
the next one only; several of them may write an outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError, StaleLease
from faultline.events import Event, emit
from faultline.health.health_file import Vitals
from faultline.logs import annotate_records, use_event_log, uses_event_log
from faultline.metrics import meter
from faultline.model import Claim
from faultline.postgres.driver import DriverError
from faultline.postgres.notified_session import NotifiedSession
from faultline.postgres.outage import outage_of
from faultline.postgres.reconnecting import ReconnectingSession, is_worth_waiting
from faultline.retry_policy import DEFAULT_RETRY, RetryDecision, decide_safely
from faultline.sentry import sentry
from faultline.statements import limits
from faultline.steady import steady_now
from faultline.supported_system import require_posix_for_services
from faultline.workers.attempt import AbortCause, Attempt
from faultline.workers.background import BackgroundTasks, Wakeup
from faultline.workers.batch_execution import BatchExecution
from faultline.workers.bounded_calls import BoundedCalls, NoReply
from faultline.workers.children import ChildDied, failure_of
from faultline.workers.claiming import Claiming
from faultline.workers.committer import Committer
from faultline.workers.control_session import ControlSession
from faultline.workers.execution import Execution
from faultline.workers.handler_resources import HandlerResources
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.idleness import Idleness
from faultline.workers.job_lines import job_lines
from faultline.workers.leases import HeldLeases
from faultline.workers.listener import Listener
from faultline.workers.loop_watch import LoopWatch
from faultline.workers.outcomes import Outcomes
from faultline.workers.progress_reports import ProgressReports
from faultline.workers.queue_groups import QueueGroups
from faultline.workers.registration import Registration
from faultline.workers.self_fencing import SelfFencing
from faultline.workers.served_queues import ServedQueues
from faultline.workers.server_failure import ServerFailure
from faultline.workers.slots import Slots

Companion = Callable[[], Coroutine[Any, Any, None]]

_ABORT_GRACE_SECONDS = 3.0
_CLOSE_SECONDS = 1.0  # for the heartbeat and the services, which may wait for the database


class Worker:
    """Runs until `stop`: once to finish running jobs, twice to release them at once.

    An operator's drain request ends it like the first call of `stop`, and sets `drain_was_requested`.
    """

    def __init__(
        self,
        app: Faultline,
        settings: WorkerSettings,
        *,
        companions: Sequence[Companion] = (),
        on_registration: Callable[[], None] = lambda: None,
        end_process: Callable[[], object] | None = None,
    ) -> None:
        require_posix_for_services()
        url = app.database_url
        make_session = functools.partial(
            ReconnectingSession, url, answer_seconds=settings.answer_seconds
        )
        decide_retry = functools.partial(_decide_retry, app)
        self._settings = settings
        self._hooks = app.hooks
        self._is_started = False  # the startup functions have ended
        self.has_started = asyncio.Event()  # the same, or the worker was stopped before
        self._queues = queues = ServedQueues(app, settings)
        self._job_lines = job_lines()
        declared = app.declared_limits()
        self._limits = (
            limits.declare(declared, [argument._asdict() for argument in app.limit_arguments()])
            if declared
            else None
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping, self._release_now = asyncio.Event(), asyncio.Event()
        self._is_signalled = self._has_failed = False
        self.drain_was_requested = False  # by an operator
        self.is_stuck = False  # it ended by an error, and a handler could not be ended
        held_leases, wakeup, calls = HeldLeases(), Wakeup(), BoundedCalls(self._stopping)
        self._wakeup, self._calls = wakeup, calls
        self._attempts: set[Attempt] = set()
        self._background = background = BackgroundTasks(wakeup)
        self._resources = HandlerResources(url, concurrency=settings.concurrency, hooks=app.hooks)
        self._watch = LoopWatch(settings, held_leases, self._attempts, decide_retry, end_process)
        self._heartbeat = Heartbeat(
            url,
            settings,
            held_leases,
            on_drain=self._drain_requested,
            may_renew=self._watch.may_renew,
        )
        self._self_fencing = SelfFencing(
            held_leases,
            margin_seconds=settings.fence_margin_seconds,
            shortest_lease=_shortest_lease(app, settings),
        )
        idleness = Idleness(settings.worker_id, lambda statement: self._control.run(statement))
        listener = Listener(
            queues.is_served,
            settings.worker_id,
            wakeup=wakeup,
            heartbeat=self._heartbeat,
            idleness=idleness,
            on_registration=on_registration,
        )
        self._control = ControlSession(
            functools.partial(
                NotifiedSession,
                url,
                answer_seconds=settings.answer_seconds,
                on_notify=listener.hear,
                on_lost=listener.lost,
            ),
            Registration(
                settings, queues, held_leases, self._heartbeat, calls, app.declared_schedules
            ),
            calls,
            listener,
            resources=self._resources,
            attempts=self._attempts,
        )
        # The path of a job, from its end to its beginning.
        self._committer = Committer(
            make_session(purpose="committer"), batch_size=settings.commit_batch, wakeup=wakeup
        )
        self._outcomes = Outcomes(
            settings.worker_id,
            held_leases=held_leases,
            committer=self._committer,
            make_session=make_session,
            background=background,
            decide_retry=decide_retry,
            wakeup=wakeup,
            hooks=app.hooks,
            job_lines=self._job_lines,
            tasks=app.tasks,
        )
        self._progress = ProgressReports(make_session(purpose="progress"))
        execution = Execution(
            app,
            self._outcomes,
            self._resources,
            attempts=self._attempts,
            background=background,
            stopping=self._stopping,
            server_failure=ServerFailure(outage_of(url), self._control),
            self_fencing=settings.self_fencing,
            progress=self._progress,
        )
        batch_execution = BatchExecution(
            app,
            self._outcomes,
            self._resources,
            attempts=self._attempts,
            background=background,
            stopping=self._stopping,
            server_failure=ServerFailure(outage_of(url), self._control),
            self_fencing=settings.self_fencing,
            progress=self._progress,
        )
        self._groups = QueueGroups(settings, queues, held_leases)
        self._slots = Slots(
            settings.concurrency,
            execution,
            batch_execution,
            self._outcomes,
            background,
            wakeup,
            groups=self._groups,
            tasks=app.tasks,
        )
        self._claiming = Claiming(
            app,
            settings,
            self._groups,
            control=self._control,
            slots=self._slots,
            outcomes=self._outcomes,
            held_leases=held_leases,
            heartbeat=self._heartbeat,
            background=background,
            wakeup=wakeup,
            stopping=self._stopping,
            idleness=idleness,
            make_session=make_session,
        )
        self._services = (
            self._committer.run,
            self._progress.run,
            *([self._follow_queues] if queues.is_every else []),
            *companions,
        )

    # ── from outside ─────────────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        if self._is_signalled:
            self._release_now.set()
        self._is_signalled = True
        self._stop_claiming()

    def stop_requested(self) -> None:
        """Bound the stop that follows, even if the loop is blocked. From any thread."""
        self._watch.stop_requested(by_signal=True)

    def _drain_requested(self) -> None:
        """Called by the heartbeat's thread."""
        self.drain_was_requested = True
        self._watch.stop_requested(by_signal=False)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_claiming)

    def _stop_claiming(self) -> None:
        self._stopping.set()
        self._slots.close()
        self._wakeup.set()

    def vitals(self) -> Vitals:
        """May be called from any thread."""
        readiness = self._claiming.readiness
        occupied = self._groups.occupied()
        own = [f"queue {name}: {taken} of {slots}" for name, (taken, slots) in occupied.items()]
        return Vitals(
            name=f"worker {self._settings.worker_id}",
            doing="; ".join(
                [f"{self._slots.running} of {self._settings.concurrency} slots are busy", *own]
            ),
            unready=readiness.why_not(is_leaving=self._stopping.is_set()),
            heartbeat_has_ended=self._heartbeat.has_ended,
            heartbeat_due_at=self._heartbeat.due_at,
            unanswered=readiness.why_unanswered(),
        )

    # ── running ──────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> bool:
        """Work until stopped. False when a handler's thread could not be ended."""
        self._loop = asyncio.get_running_loop()
        services: list[asyncio.Task[None]] = []
        annotate_records()
        try:
            await self._start_up()
            self.has_started.set()
            await self._resources.open()
            meter.current.expect(self._queues.names)
            self._queues.report_mismatches()
            await self._first_connection()
            if self._settings.self_fencing:
                self._self_fencing.start()
            self._watch.start(self._heartbeat)
            services += [asyncio.create_task(service()) for service in self._services]
            stuck = await self._work_and_drain(services)
        finally:
            await self._close(services)
        emit(
            Event.WORKER_STOPPED,
            worker=self._settings.worker_id,
            jobs=self._slots.started,
            stuck_threads=stuck,
        )
        return stuck == 0

    async def _start_up(self) -> None:
        """Run the application's startup functions. A stop cancels async ones."""
        if self._hooks.startup:
            starting = asyncio.create_task(self._hooks.start_all())
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                return
            starting.result()
        self._is_started = True
        if uses_event_log():
            use_event_log()  # a startup function may have imported structlog
        sentry.find()

    async def _follow_queues(self) -> None:
        async def on_change() -> None:
            self._wakeup.set()
            await self._control.update_queues()

        await self._queues.follow(self._control.run, on_change)

    async def _first_connection(self) -> None:
        """Wait for a server that is away; a wrong schema or account is an error at once."""
        while not self._stopping.is_set():
            try:
                await self._control.connect()
                if self._limits is not None:
                    await self._control.run(self._limits)
                return
            except NoReply:
                return
            except (FaultlineError, DriverError) as error:
                if not is_worth_waiting(error):
                    raise
                await self._control.pause(error, stop=self._stopping)

    async def _work_and_drain(self, services: Sequence[asyncio.Task[None]]) -> int:
        """Claim, then drain, also after an error, for which no attempt is charged."""
        try:
            await self._claiming.run(services)
        except Exception:
            self._has_failed = True
            self._stop_claiming()
            self.is_stuck = await self._drain() > 0
            raise
        return await self._drain()

    # ── draining ─────────────────────────────────────────────────────────────────────────────────

    async def _drain(self) -> int:
        """Let attempts finish, then release the rest; heartbeats go on until the end.

        Returns how many handlers' threads could not be ended.
        """
        self._flush_metrics()
        emit(
            Event.WORKER_DRAINING,
            worker=self._settings.worker_id,
            running=self._slots.running,
            cause=self._stop_cause(),
        )
        self._slots.close()
        if self._heartbeat.is_started and (
            self._slots.running or self._control.has_unanswered_calls
        ):
            self._background.spawn(self._control.mark_draining())
        await self._slots.wait_idle(self._settings.drain_seconds, unless=self._release_now)
        for attempt in tuple(self._attempts):
            attempt.abort(AbortCause.DRAIN)
        await self._slots.wait_idle(_ABORT_GRACE_SECONDS)
        stuck = self._stuck_handlers()
        # TimeoutError: the database does not answer, and the jobs will run again.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._outcomes.commits_written(), _ABORT_GRACE_SECONDS)
        await self._slots.wait_idle(0 if stuck else _ABORT_GRACE_SECONDS)
        self._resources.is_closing = True
        self._slots.cancel_all()
        return stuck

    def _stuck_handlers(self) -> int:
        """How many handlers cannot be ended; logs where each of them is."""
        stuck = [attempt for attempt in self._attempts if attempt.is_running]
        for attempt in stuck:
            stack = attempt.stack()
            self._outcomes.say(
                Event.DEGRADED,
                attempt.lease,
                reason="a handler could not be ended: the process ends without it",
                task=attempt.task.name,
                frame=None if stack is None else stack.frame,
                stack=None if stack is None else stack.text,
            )
        return len(stuck)

    def _stop_cause(self) -> str:
        if self._has_failed:
            return "error"
        return "signal" if self._is_signalled else "request" if self.drain_was_requested else "done"

    # ── closing ──────────────────────────────────────────────────────────────────────────────────

    async def _close(self, services: Sequence[asyncio.Task[None]]) -> None:
        """End and close everything, also when one of the steps is cancelled or fails."""
        parts = (
            self._control,
            self._committer,
            self._progress,
            self._outcomes,
            self._claiming,
            self._resources,
        )
        async with contextlib.AsyncExitStack() as steps:  # the last one pushed is the first to run
            steps.callback(self._flush_metrics)
            if self._job_lines is not None:
                steps.callback(self._job_lines.close)
            for part in reversed(parts):
                steps.push_async_callback(part.close)
            steps.push_async_callback(self._control.close_unanswered)
            steps.push_async_callback(self._calls.close)
            steps.push_async_callback(self._stop_heartbeat)
            if self._is_started:
                await self._hooks.stop()
            await _end(services)

    async def _stop_heartbeat(self) -> None:
        self._watch.stop()
        has_stopped = self._heartbeat.stop(_CLOSE_SECONDS)
        self._self_fencing.stop()
        if self._heartbeat.is_started and has_stopped:
            await self._control.deregister()

    def _flush_metrics(self) -> None:
        meter.current.flush(steady_now(), running=self._slots.running)


def _decide_retry(app: Faultline, claim: Claim, error: Exception) -> RetryDecision:
    """What follows a failure, by the task's policy.

    A child process has decided about its own error, because only it has the exception.
    """
    task = app.tasks.get(claim.task)
    policy = DEFAULT_RETRY if task is None else task.settings.retry
    if (failure := failure_of(error)) is not None and failure.decision is not None:
        return failure.decision
    is_of_handler = not isinstance(error, StaleLease | ChildDied)
    return decide_safely(policy, error, claim.attempt, is_of_handler=is_of_handler)


def _shortest_lease(app: Faultline, settings: WorkerSettings) -> float:
    """The shortest lease of all tasks; refuses one too short for the heartbeats."""
    shortest = settings.lease_seconds
    for task in app.tasks.values():
        if (own := task.settings.lease_seconds) is not None:
            settings.check_lease(own, f"lease of {task.name}")
            shortest = min(shortest, own)
    return shortest


async def _end(services: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the services, twice.

    On the first cancellation the driver sends a cancel request and waits for the server, which may not
    answer. The second one ends that wait.
    """
    for _ in range(2):
        for service in services:
            service.cancel()
        with contextlib.suppress(TimeoutError):
            ended = asyncio.gather(*services, return_exceptions=True)
            await asyncio.wait_for(asyncio.shield(ended), _CLOSE_SECONDS)
            return
