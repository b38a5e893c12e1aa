"""Claims jobs for one worker, and enters the leases in its book."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.events import Event, log
from faultline.metrics import meter
from faultline.model import Claim
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.statements import protocol
from faultline.steady import steady_now
from faultline.tracing import tracing
from faultline.workers.claim_cursor import ClaimCursor
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import Lease, LeaseBook
from faultline.workers.outcomes import Outcomes
from faultline.workers.takeovers import Takeovers
from faultline.workers.unknown_tasks import UnknownTasks


class Claiming:
    def __init__(
        self,
        app: Faultline,
        settings: WorkerSettings,
        *,
        book: LeaseBook,
        heartbeat: Heartbeat,
        settlement: Outcomes,
        takeovers: Takeovers,
        unknown_tasks: UnknownTasks,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._app = app
        self._settings = settings
        self._book = book
        self._heartbeat = heartbeat
        self._settlement = settlement
        self._takeovers = takeovers
        self._unknown_tasks = unknown_tasks
        self._spawn = spawn
        self._bookmark = ClaimCursor()
        self.is_deferring = (
            False  # jobs of unknown tasks are on their way back: claim no more of them
        )

    async def claim(self, link: ReconnectingSession, wanted: int) -> list[Lease]:
        """The claimed jobs that this worker can run. The others are deferred in the background."""
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
            tasks=self._unknown_tasks.runnable(self._app.tasks, sent_at),
        )
        claims = await link.run(statement)
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
        known = self._app.tasks
        unknown = [lease for lease in leases if lease.claim.task not in known]
        if unknown:
            self.is_deferring = True
            self._spawn(self._defer(unknown))
            leases = [lease for lease in leases if lease.claim.task in known]
        return leases

    async def _defer(self, leases: list[Lease]) -> None:
        try:
            await self._settlement.defer(leases)
        finally:
            self.is_deferring = False

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
