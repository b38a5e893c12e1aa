"""Gives back what dead workers hold. Runs in every worker; one of them leads.

Leading is a convenience, not a guard: any number of reconcilers may act at once, and a wrong guess
wastes work and corrupts nothing, because the fence decides.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Sequence
from uuid import UUID

from faultline.config import (
    LEADER_PULSE_SECONDS,
    LEADERSHIP_SECONDS,
    LIVENESS_SECONDS,
    LONGEST_LEADERSHIP_SECONDS,
    RECONNECT_SECONDS,
    Retention,
)
from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.health.report import Vitals
from faultline.metrics import meter
from faultline.model import JobState
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient, raise_if_cancelled
from faultline.postgres.sessions import AsyncConnection
from faultline.reconciler.census import Census
from faultline.reconciler.holders import Holders
from faultline.reconciler.leadership import Leadership
from faultline.reconciler.liveness import DeathJudge, LeaseObserver
from faultline.reconciler.purger import Purger
from faultline.reconciler.rescheduling import Rescheduler
from faultline.statements import protocol, workers
from faultline.statements.session_settings import Session
from faultline.statements.workers import Survey
from faultline.steady import steady_now
from faultline.tracing import tracing

_MAX_JOBS = 500
_OBSERVED_LEASES = 10_000
_OBSERVE_SECONDS = 1.0
# An old snapshot anywhere keeps the index entries of ended leases alive, and a look walks past them:
# the dearer that becomes, the more seldom.
_LOOKING_SHARE = 4
_LONGEST_WAIT_TO_LOOK_SECONDS = 1.0
_WORKERS_PER_WAIT = 10
_STANDS_IN = (
    "the reconciler that leads shows no life, and the server has not ended its session, as it would unless"
    " its clock was set back: another one leads until it is heard of again"
)
_CONTESTED = (
    "a session whose account has no rights on the schema faultline holds the advisory lock of the leading"
    " reconciler: every reconciler acts until that session ends"
)
_UNHEARD_SECONDS = 30.0  # several times the longest pause between two round trips


class Reconciler:
    def __init__(self, url: str, retention: Retention | None = None) -> None:
        self._purger = Purger(url, retention or Retention())
        self._census = Census(url)
        self._link = ReconnectingSession(url, purpose="reconciler", on_connect=self._prepare)
        self._leadership = Leadership(self._link)
        self._is_pooled = False
        self._observer = LeaseObserver()
        self._rescheduler = Rescheduler(self._link)
        self._holders = Holders(self._link)
        self._observe_at = 0.0
        self._known_dead: set[str] = set()
        self._judge = DeathJudge()
        self._said_spared = False
        self._is_leading = False
        self._heard_at: float | None = None  # the last answer of the database

    def vitals(self) -> Vitals:
        """May be called from any thread."""
        heard_at, now = self._heard_at, steady_now()
        unready = None
        if heard_at is None:
            unready = "has not heard from the database yet"
        elif now - heard_at > _UNHEARD_SECONDS:
            unready = f"has not heard from the database for {now - heard_at:.1f} s"
        doing = "it leads" if self._is_leading else "another one leads, or none does yet"
        return Vitals(f"reconciler {socket.gethostname()}-{os.getpid()}", doing, unready)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                try:
                    await self._wait_to_lead()
                    await self._lead()
                    await self._link.close()  # it stood in: what it locked goes with the session
                except (FaultlineError, DriverError) as error:
                    raise_if_cancelled(error)
                    if not is_transient(error):
                        raise
                    await self._link.drop()
                    await self._link.pause(error)
        finally:
            await self._link.close()

    async def _prepare(self, conn: AsyncConnection, session: Session) -> None:
        if session.is_pooled and not self._is_pooled:
            emit(
                Event.DEGRADED,
                reason="a pooler is in between: no session locks, so that nobody leads and every"
                " reconciler acts",
            )
        self._is_pooled = session.is_pooled

    async def _wait_to_lead(self) -> None:
        """Try again and again rather than block on the lock: a blocked session holds back vacuum, and
        would not notice that its own client has died."""
        await self._link.connection()
        while not self._is_pooled:  # behind a pooler a session lock means nothing: everyone acts
            leads, workers = await self._leadership.take()
            self._heard_at = steady_now()
            if leads:
                stands_in = self._leadership.stands_in
                if self._leadership.is_contested:
                    emit(Event.DEGRADED, reason=_CONTESTED)
                elif stands_in:
                    emit(Event.DEGRADED, reason=_STANDS_IN)
                emit(Event.RECONCILER_LEADING, stands_in=stands_in)
                return
            # The more of them wait, the less often each asks; one of them is soon enough.
            share = max(1.0, workers / _WORKERS_PER_WAIT)
            wait = min(LEADERSHIP_SECONDS * share, LONGEST_LEADERSHIP_SECONDS)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spread

    async def _lead(self) -> None:
        """For as long as it may: for ever, unless it stands in for another one."""
        await self._link.run(workers.bury_workers([]))
        await self._rescheduler.begin()
        beside = [asyncio.create_task(self._purger.run())]
        if meter.current.is_on:
            beside.append(asyncio.create_task(self._census.run()))
            meter.current.leads(True)
        self._is_leading = True
        try:
            pause = 0.0
            while await self._rest(pause):
                began = time.monotonic()
                pause = await self._look()
                meter.current.looked(time.monotonic() - began)
        finally:
            self._is_leading = False
            meter.current.leads(False)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _rest(self, seconds: float) -> bool:
        """Wait for so long, showing life; whether to go on."""
        wake_at = time.monotonic() + seconds
        while await self._keeps_leading():
            left = wake_at - time.monotonic()
            if left <= 0:
                return True
            await asyncio.sleep(min(left, LEADER_PULSE_SECONDS))
        return False

    async def _keeps_leading(self) -> bool:
        if self._is_pooled or not self._is_leading:
            return True
        return await self._leadership.keep()

    async def _look(self) -> float:
        """Look once, act on it, and say how long to wait before the next look."""
        began, sent_at = time.monotonic(), steady_now()
        survey = await self._link.run(workers.survey())
        self._heard_at = steady_now()
        cost = time.monotonic() - began
        restored_at = self._link.restored_at
        dead = self._judge.dead_workers(
            survey,
            seconds_since_own_loss=None if restored_at is None else steady_now() - restored_at,
        )
        for worker in dead:
            if worker not in self._known_dead:
                emit(Event.WORKER_LOST, worker=worker)
        self._known_dead = set(dead)
        if self._judge.spared and not self._said_spared:
            emit(
                Event.DEGRADED,
                reason="most workers vanished, and this reconciler's own session was lost as well:"
                f" giving them {RECONNECT_SECONDS:g} s to connect again",
            )
        self._said_spared = bool(self._judge.spared)

        lapsed = await self._observe()
        is_due = survey.next_expiry_seconds is not None and survey.next_expiry_seconds <= 0
        if dead or lapsed or is_due:
            await self._give_back(dead, lapsed)
        await self._holders.look(-(survey.next_expiry_seconds or 0.0))
        if dead:
            await self._link.run(workers.bury_workers(dead))
        await self._rescheduler.look(
            survey.clock_seconds,
            sent_at=sent_at,
            answered_at=self._heard_at,
            may_go_on=self._keeps_leading,
        )
        return max(self._pause(survey), _LOOKING_SHARE * cost)

    def _pause(self, survey: Survey) -> float:
        """Behind a pooler everyone looks: the more there are, the less often each of them does, and they
        do not all wake up for the same lease."""
        share, spread = 1.0, 0.001
        if self._is_pooled or self._leadership.is_contested:
            share = max(1.0, survey.registered / _WORKERS_PER_WAIT)
            spread = LIVENESS_SECONDS * random.random()  # noqa: S311 - spread
        pause = min(LIVENESS_SECONDS * share, _LONGEST_WAIT_TO_LOOK_SECONDS)
        pause *= random.uniform(0.8, 1.0)  # noqa: S311 - spread
        if survey.next_expiry_seconds is not None and survey.next_expiry_seconds > 0:
            pause = min(pause, survey.next_expiry_seconds + spread)
        return pause

    async def _observe(self) -> list[UUID]:
        now = time.monotonic()
        if now < self._observe_at:
            return []
        sightings = await self._link.run(workers.running_leases(limit=_OBSERVED_LEASES))
        cost = time.monotonic() - now
        self._observe_at = now + max(_OBSERVE_SECONDS, _LOOKING_SHARE * cost)
        return self._observer.lapsed(sightings, now)

    async def _give_back(self, dead: Sequence[str], lapsed: Sequence[UUID]) -> None:
        statement = protocol.reconcile(max_jobs=_MAX_JOBS, dead_workers=dead, lapsed_leases=lapsed)
        for _ in range(100):  # more than that waits for the next look
            if not await self._keeps_leading():
                return
            began_ns = time.time_ns()
            reaped = await self._link.run(statement)
            if reaped and (spans := tracing.look()) is not None:
                spans.took_back(reaped, began_ns)
            for job in reaped:
                emit(
                    Event.LEASE_REAPED,
                    job_id=str(job.job_id),
                    token=job.fencing_token,
                    lost_worker=job.worker,
                    cause=job.cause,
                )
                if job.state is JobState.FAILED:
                    emit(Event.JOB_DEAD, job_id=str(job.job_id), reason="poison")
            if len(reaped) < _MAX_JOBS:
                return
