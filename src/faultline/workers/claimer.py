"""Claims jobs for one worker, and enters the leases in its book."""

from __future__ import annotations

import time

from faultline import protocol
from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.events import Event, log
from faultline.link import Link
from faultline.metrics import meter
from faultline.model import Claim
from faultline.steady import steady_now
from faultline.tracing import tracing
from faultline.workers.bookmark import Bookmark
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import Lease, LeaseBook
from faultline.workers.settlement import Settlement
from faultline.workers.takeovers import Takeovers


class Claimer:
    def __init__(
        self,
        app: Faultline,
        settings: WorkerSettings,
        *,
        book: LeaseBook,
        heartbeat: Heartbeat,
        settlement: Settlement,
        takeovers: Takeovers,
    ) -> None:
        self._app = app
        self._settings = settings
        self._book = book
        self._heartbeat = heartbeat
        self._settlement = settlement
        self._takeovers = takeovers
        self._bookmark = Bookmark()

    async def claim(self, link: Link, wanted: int) -> list[Lease]:
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
