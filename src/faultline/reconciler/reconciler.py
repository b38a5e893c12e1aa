"""Requeues the jobs of dead workers, and fires schedules.

Runs in every worker; one of them leads.

The leader only saves work: any number of reconcilers may act at once. A worker that is wrongly taken for
dead costs a repeated attempt and corrupts nothing, because the fence decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Container, Sequence
from uuid import UUID

from faultline.config import (
    LEADER_HEARTBEAT_SECONDS,
    LEADERSHIP_SECONDS,
    LIVENESS_SECONDS,
    LONGEST_LEADERSHIP_SECONDS,
    RECONNECT_SECONDS,
    Retention,
)
from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.health.health_file import Vitals
from faultline.hooks import Hooks
from faultline.metrics import meter
from faultline.model import JobState
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient, raise_if_cancelled
from faultline.postgres.sessions import AsyncConnection
from faultline.reconciler.clock_setback import ClockSetback
from faultline.reconciler.dead_jobs import DeadJobs
from faultline.reconciler.due_jobs import DueJobs
from faultline.reconciler.frozen_sessions import FrozenSessions
from faultline.reconciler.leader_metrics import LeaderMetrics
from faultline.reconciler.leadership import Leadership
from faultline.reconciler.limits import LimitsRepair
from faultline.reconciler.liveness import DeadWorkers, LeaseObserver
from faultline.reconciler.retention import RetentionTask
from faultline.reconciler.scheduler import Scheduler
from faultline.statements import protocol, workers
from faultline.statements.session_settings import Session
from faultline.statements.survey import Survey, survey
from faultline.steady import steady_now
from faultline.tracing import tracing

_MAX_JOBS = 500
_OBSERVED_LEASES = 10_000
_OBSERVE_SECONDS = 1.0
_COMPLETE_SECONDS = 0.9  # a survey after this long also looks for less urgent work
# An old snapshot anywhere keeps the index entries of ended leases, and each look reads past them. The
# longer a look takes, the less often the reconciler looks.
_LOOKING_SHARE = 4
_LONGEST_WAIT_TO_LOOK_SECONDS = 1.0
_ALONE_SECONDS = 1.25  # well below LEADER_SILENCE_SECONDS
_WORKERS_PER_WAIT = 10
_WAIT_PER_FURTHER_WORKER_SECONDS = 0.5  # up to the longest wait
_ACTING_LEADER = (
    "the leading reconciler sends no heartbeat, and the server has not ended its session, probably because"
    " its clock was set back: this reconciler acts as leader until the heartbeat returns"
)
_CONTESTED = (
    "a session whose account has no rights on the schema faultline holds the advisory lock of the leading"
    " reconciler: every reconciler acts until that session ends"
)
_UNANSWERED_SECONDS = 30.0  # several times the longest pause between two statements


class Reconciler:
    def __init__(
        self,
        url: str,
        retention: Retention | None = None,
        *,
        hooks: Hooks | None = None,
        tasks: Container[str] = (),
        worker_id: str = "",
    ) -> None:
        """`hooks` are called for dead jobs of these tasks, those of one application.

        `worker_id` is the worker of the same process, which this reconciler cannot survive.
        """
        self._retention = RetentionTask(url, retention or Retention())
        self._metrics = LeaderMetrics(url)
        self._scheduler = Scheduler(url)
        self._session = ReconnectingSession(url, purpose="reconciler", on_connect=self._prepare)
        self._leadership = Leadership(self._session)
        self._is_pooled = False
        self._observer = LeaseObserver()
        self._clock_setback = ClockSetback(self._session)
        self._frozen_sessions = FrozenSessions(self._session)
        self._dead_jobs = DeadJobs(hooks, tasks)
        self._limits = LimitsRepair()
        self._due_jobs = DueJobs()
        self._worker_id = worker_id
        self._look_now = asyncio.Event()
        self._complete_at = 0.0
        self._has_limits = False
        self._observe_at = 0.0
        self._known_dead: set[str] = set()
        self._dead_workers = DeadWorkers()
        self._logged_spared = False
        self._is_leading = False
        self._answered_at: float | None = None  # the last answer of the database

    def vitals(self) -> Vitals:
        """May be called from any thread."""
        answered_at, now = self._answered_at, steady_now()
        unready = None
        if answered_at is None:
            unready = "has had no answer from the database yet"
        elif now - answered_at > _UNANSWERED_SECONDS:
            unready = f"has had no answer from the database for {now - answered_at:.1f} s"
        doing = "it leads" if self._is_leading else "it does not lead"
        return Vitals(f"reconciler {socket.gethostname()}-{os.getpid()}", doing, unready)

    def worker_registered(self) -> None:
        """Look at once: this process is not the only one any more."""
        self._look_now.set()

    async def run(self) -> None:
        """Wait to lead, then lead, until cancelled."""
        try:
            while True:
                try:
                    await self._wait_to_lead()
                    await self._lead()
                    # It was an acting leader. Closing the session releases its locks.
                    await self._session.close()
                except (FaultlineError, DriverError) as error:
                    raise_if_cancelled(error)
                    if not is_transient(error):
                        raise
                    await self._session.drop()
                    await self._session.pause(error)
        finally:
            self._dead_jobs.close()
            await self._session.close()

    async def _prepare(self, conn: AsyncConnection, session: Session) -> None:
        if session.is_pooled and not self._is_pooled:
            emit(
                Event.DEGRADED,
                reason="the database is reached through a pooler, so session locks do not work: no"
                " reconciler leads, and every one acts",
            )
        self._is_pooled = session.is_pooled

    async def _wait_to_lead(self) -> None:
        """Poll for the lock instead of blocking on it.

        A blocked session holds back vacuum and does not notice that its own client has died.
        """
        await self._session.connection()
        # Behind a pooler session locks do not work, and every reconciler acts.
        while not self._is_pooled:
            leads, workers = await self._leadership.take()
            self._answered_at = steady_now()
            if leads:
                is_acting_leader = self._leadership.is_acting_leader
                if self._leadership.is_contested:
                    emit(Event.DEGRADED, reason=_CONTESTED)
                elif is_acting_leader:
                    emit(Event.DEGRADED, reason=_ACTING_LEADER)
                emit(Event.RECONCILER_LEADING, is_acting_leader=is_acting_leader)
                return
            # The more reconcilers wait, the less often each of them asks.
            further = max(0, workers - _WORKERS_PER_WAIT)
            wait = LEADERSHIP_SECONDS + further * _WAIT_PER_FURTHER_WORKER_SECONDS
            wait = min(wait, LONGEST_LEADERSHIP_SECONDS)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spread

    async def _lead(self) -> None:
        """Lead until cancelled; an acting leader, until the leader is back or gone."""
        await self._session.run(workers.remove_dead_workers([]))
        await self._clock_setback.begin()
        beside = [
            asyncio.create_task(self._retention.run()),
            asyncio.create_task(self._scheduler.follow()),
        ]
        if meter.current.is_on:
            beside.append(asyncio.create_task(self._metrics.run()))
            meter.current.leads(True)
        self._is_leading = True
        try:
            pause = 0.0
            while await self._wait(pause):
                began = time.monotonic()
                pause = await self._look()
                meter.current.reconciled(time.monotonic() - began)
        finally:
            self._is_leading = False
            meter.current.leads(False)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _wait(self, seconds: float) -> bool:
        """Wait, and send heartbeats meanwhile. False when it must stop leading.

        The survey that follows a short wait sends the heartbeat.
        """
        is_short = seconds <= _ALONE_SECONDS
        wake_at = time.monotonic() + seconds
        while await self._keeps_leading(may_wait=is_short):
            left = wake_at - time.monotonic()
            if left <= 0 or self._look_now.is_set():
                self._look_now.clear()
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), min(left, LEADER_HEARTBEAT_SECONDS))
        return False

    async def _keeps_leading(self, *, may_wait: bool = False) -> bool:
        if self._is_pooled or not self._is_leading:
            return True
        return await self._leadership.keep(may_wait=may_wait)

    async def _look(self) -> float:
        """Look once and act; returns how long to wait before the next look."""
        began, sent_at = time.monotonic(), steady_now()
        survey = await self._survey()
        self._answered_at = steady_now()
        cost = time.monotonic() - began - (0.0 if survey.wake is None else survey.wake.took_seconds)
        restored_at = self._session.restored_at
        dead = self._dead_workers.dead_workers(
            survey,
            seconds_since_own_loss=None if restored_at is None else steady_now() - restored_at,
        )
        for worker in dead:
            if worker not in self._known_dead:
                emit(Event.WORKER_LOST, worker=worker)
        self._known_dead = set(dead)
        if self._dead_workers.spared and not self._logged_spared:
            emit(
                Event.DEGRADED,
                reason="most workers vanished, and this reconciler's own session was lost as well:"
                f" they get {RECONNECT_SECONDS:g} s to connect again",
            )
        self._logged_spared = bool(self._dead_workers.spared)

        lapsed = await self._observe(survey)
        if survey.has_expired_jobs:
            await self._fail_expired()
        if self._has_limits:
            await self._limits.look(self._session)
        is_due = survey.next_expiry_seconds is not None and survey.next_expiry_seconds <= 0
        if dead or lapsed or is_due:
            await self._reconcile(dead, lapsed)
        await self._frozen_sessions.look(-(survey.next_expiry_seconds or 0.0))
        if dead:
            await self._session.run(workers.remove_dead_workers(dead))
        await self._clock_setback.look(
            survey.clock_seconds,
            sent_at=sent_at,
            answered_at=self._answered_at,
            may_go_on=self._keeps_leading,
        )
        return max(self._pause(survey), _LOOKING_SHARE * cost)

    async def _survey(self) -> Survey:
        """Read what there is to do, and send the leader's heartbeat if it is due."""
        began = time.monotonic()
        heartbeat = None if self._is_pooled else self._leadership.due_heartbeat()
        is_complete = began >= self._complete_at
        found = await self._session.run(
            survey(
                self._worker_id,
                heartbeat=heartbeat,
                is_complete=is_complete,
                wakes=self._due_jobs.is_time(began),
            )
        )
        if found.wake is not None:
            self._due_jobs.note(found.wake, time.monotonic())
        if heartbeat is not None and found.has_beaten:
            self._leadership.has_sent(heartbeat)
        if is_complete:
            self._complete_at = began + _COMPLETE_SECONDS
            self._has_limits = bool(found.has_limits)
            self._scheduler.expect(found.next_fire_seconds)
        return found

    def _pause(self, survey: Survey) -> float:
        """How long to wait before the next look.

        Where every reconciler acts, each looks less often the more there are, and a random part keeps
        them from waking up for the same lease.
        """
        share, spread = 1.0, 0.001
        if self._is_pooled or self._leadership.is_contested:
            share = max(1.0, survey.registered / _WORKERS_PER_WAIT)
            spread = LIVENESS_SECONDS * random.random()  # noqa: S311 - spread
        elif self._worker_id and survey.others == 0 and survey.next_expiry_seconds is None:
            # Only the worker of this process could die, and then this reconciler dies with it.
            due = self._due_jobs.seconds_until_due(time.monotonic())
            return _ALONE_SECONDS if due is None else min(_ALONE_SECONDS, max(due, 0.001))
        pause = min(LIVENESS_SECONDS * share, _LONGEST_WAIT_TO_LOOK_SECONDS)
        pause *= random.uniform(0.8, 1.0)  # noqa: S311 - spread
        if survey.next_expiry_seconds is not None and survey.next_expiry_seconds > 0:
            pause = min(pause, survey.next_expiry_seconds + spread)
        return pause

    async def _observe(self, survey: Survey) -> list[UUID]:
        now = time.monotonic()
        if now < self._observe_at:
            return []
        if survey.next_expiry_seconds is None:
            return self._observer.lapsed((), now)
        sightings = await self._session.run(workers.running_leases(limit=_OBSERVED_LEASES))
        cost = time.monotonic() - now
        self._observe_at = now + max(_OBSERVE_SECONDS, _LOOKING_SHARE * cost)
        return self._observer.lapsed(sightings, now)

    async def _fail_expired(self) -> None:
        """Fail expired jobs of queues that no worker serves; claims fail the others."""
        expired = await self._session.run(protocol.fail_expired(max_jobs=_MAX_JOBS))
        if len(expired) == _MAX_JOBS:
            self._complete_at = 0.0
        await self._dead_jobs.report_expired(self._session, expired)

    async def _reconcile(self, dead: Sequence[str], lapsed: Sequence[UUID]) -> None:
        statement = protocol.reconcile(max_jobs=_MAX_JOBS, dead_workers=dead, lapsed_leases=lapsed)
        for _ in range(100):  # further jobs wait for the next look
            if not await self._keeps_leading():
                return
            began_ns = time.time_ns()
            reconciled = await self._session.run(statement)
            if reconciled and (spans := tracing.find()) is not None:
                spans.reconciled(reconciled, began_ns)
            for job in reconciled:
                emit(
                    Event.LEASE_REAPED,
                    job_id=str(job.job_id),
                    token=job.fencing_token,
                    lost_worker=job.worker,
                    cause=job.cause,
                )
            failed = [job for job in reconciled if job.state is JobState.FAILED]
            await self._dead_jobs.report(self._session, failed)
            if len(reconciled) < _MAX_JOBS:
                return
