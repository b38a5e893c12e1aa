"""The claim loop: claims jobs while slots are free, and adds them to the slots."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence

import orjson

from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.events import Event, log
from faultline.metrics import meter
from faultline.model import Claim
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient
from faultline.statements import lost_attempts
from faultline.statements.claim_requests import ClaimRequest, claim_requested
from faultline.steady import steady_now
from faultline.tracing import tracing
from faultline.workers.background import BackgroundTasks, Wakeup
from faultline.workers.bounded_calls import NoReply
from faultline.workers.control_session import ControlSession
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.idleness import Idleness
from faultline.workers.leases import HeldLeases, Lease
from faultline.workers.outcomes import Outcomes
from faultline.workers.queue_groups import QueueGroups
from faultline.workers.readiness import Readiness
from faultline.workers.slots import Slots

_BATCH_SIZE = 500
# A transaction whose COMMIT began before the worker announced itself may have taken this long.
_AFTER_ANNOUNCING_SECONDS = 0.02


class Claiming:
    """Claims jobs for one worker and adds their leases to its slots."""

    def __init__(
        self,
        app: Faultline,
        settings: WorkerSettings,
        groups: QueueGroups,
        *,
        control: ControlSession,
        slots: Slots,
        outcomes: Outcomes,
        held_leases: HeldLeases,
        heartbeat: Heartbeat,
        background: BackgroundTasks,
        wakeup: Wakeup,
        stopping: asyncio.Event,
        idleness: Idleness,
        make_session: Callable[..., ReconnectingSession],
    ) -> None:
        self._app = app
        self._settings = settings
        self._groups = groups
        self._control = control
        self._slots = slots
        self._outcomes = outcomes
        self._held_leases = held_leases
        self._heartbeat = heartbeat
        self._background = background
        self._wakeup = wakeup
        self._stopping = stopping
        self._idleness = idleness
        self._notified: list[str] = []  # queues with due jobs, until a claim has found their end
        self._takeovers = TakeoverMetrics(make_session(purpose="takeovers"), background)
        self._jobs_per_slot = groups.jobs_per_slot
        self._ahead = ClaimAhead(limit=settings.claim_ahead)
        self._cursor = ClaimCursor()
        # Jobs of unknown tasks are being deferred. Until that is done, a claim would get them again.
        self._is_deferring = False
        self.readiness = Readiness(heartbeat, max_unanswered_seconds=settings.lease_seconds)

    async def close(self) -> None:
        await self._takeovers.close()

    async def run(self, services: Sequence[asyncio.Task[None]]) -> None:
        """Claim until the worker stops; raise the error of a service that ended."""
        limit = self._settings.max_jobs
        while not self._stopping.is_set():
            for service in services:
                if service.done():
                    service.result()
            self._wakeup.clear()
            self._flush_metrics()
            self._slots.release_overdue()
            try:
                if await self._claim_and_announce():
                    continue
            except NoReply:
                return
            except (FaultlineError, DriverError) as error:
                if not is_transient(error):
                    raise
                await self._control.pause(error, stop=self._stopping)
                continue
            if limit and self._slots.started >= limit and not self._slots.running:
                break
            poll_seconds = self._settings.poll_seconds * self._idleness.poll_factor
            await self._wakeup.wait(poll_seconds * random.uniform(0.8, 1.2))  # noqa: S311 - spread
        self._notified += self._wakeup.take_notified()
        if self._notified:
            with contextlib.suppress(NoReply, FaultlineError, DriverError):
                await self._idleness.withdraw(self._notified)

    async def _claim_and_announce(self) -> bool:
        """Claim if there are free slots, and tell the database whether there are.

        Returns whether to claim again at once.
        """
        self._notified += self._wakeup.take_notified()
        wanted = self._wanted()
        if wanted > 0 and self._wakeup.is_full_look_due:
            self._wakeup.is_full_look_due = False
            self._cursor.forget()
        resume_after = self._cursor.resume_after(steady_now()) if wanted > 0 else None
        requests = self._groups.requests(wanted, is_from_start=resume_after is None)
        if not requests:
            passed_on, self._notified = self._notified, []
            await self._idleness.is_busy(passed_on, now=steady_now())
            return False
        leases, may_have_more = await self._claim(requests, resume_after)
        self._slots.add(leases)
        self._jobs_per_slot = self._slots.jobs_per_slot(leases) or self._jobs_per_slot
        if may_have_more:
            await self._idleness.is_busy((), now=steady_now())
            return True
        self._flush_metrics()
        return await self._took_all(requests)

    async def _took_all(self, requests: Sequence[ClaimRequest]) -> bool:
        """The claim found fewer jobs than it asked for.

        Returns whether to claim again at once.
        """
        notified, self._notified = self._notified, []
        if notified:
            asked = {queue for request in requests for queue in request.queues}
            if left := [queue for queue in notified if queue not in asked]:
                await self._idleness.withdraw(left)
        if self._wanted() <= 0:
            return False
        if await self._idleness.is_free(self._groups.free_queues(), now=steady_now()):
            self._wakeup.set_in(_AFTER_ANNOUNCING_SECONDS)
            return True
        return False

    def _wanted(self) -> int:
        """How many jobs to claim now, for slots that are free or soon will be."""
        settings, slots = self._settings, self._slots
        if self._is_deferring:
            return 0
        if self._outcomes.pending_commits > 2 * settings.commit_batch:
            return 0  # the database is slower than the handlers: do not collect more leases
        per_slot = self._jobs_per_slot
        ahead = self._ahead.jobs(steady_now(), ended=slots.ended)
        if per_slot > 1:
            ahead = whole_batches(ahead, per_slot)
        if slots.buffered > ahead // 2:
            return 0  # enough for now; a larger claim costs each job less
        waiting = slots.waiting
        wanted = slots.room(per_slot) + ahead - waiting
        if settings.max_jobs:
            wanted = min(wanted, settings.max_jobs - slots.started - waiting)
        return min(wanted, _BATCH_SIZE)

    async def _claim(
        self, requests: Sequence[ClaimRequest], resume_after: str | None
    ) -> tuple[list[Lease], bool]:
        is_answered = False
        self.readiness.claim_begins()
        try:
            claimed = await self._claim_batch(requests, resume_after)
            is_answered = True
        finally:
            self.readiness.claim_ends(is_answered=is_answered)
        return claimed

    async def _claim_batch(
        self, requests: Sequence[ClaimRequest], resume_after: str | None
    ) -> tuple[list[Lease], bool]:
        """Claim jobs, and defer those that this worker cannot run.

        Returns the others, and whether there may be more.
        """
        settings, unknown_tasks = self._settings, self._outcomes.unknown_tasks
        sent_at = steady_now()
        spans = tracing.find()
        began_ns = 0 if spans is None else time.time_ns()
        statement = claim_requested(
            settings.worker_id,
            requests,
            lease_seconds=settings.lease_seconds,
            resume_after=resume_after,
            tasks=unknown_tasks.runnable(self._app.tasks, sent_at),
        )
        claims = await self._control.run(statement)
        answered_at = steady_now()
        may_have_more = self._groups.record(claims)
        self._cursor.advance(
            claims,
            was_full=resume_after is None or not may_have_more,
            began=sent_at,
            ended=answered_at,
        )
        meter.current.claimed(claims, answered_at - sent_at)
        if meter.current.is_on:
            self._takeovers.count(claims)
        leases = [self._hold(claim, sent_at) for claim in claims]
        if log.is_verbose:
            for lease in leases:
                self._outcomes.say(Event.LEASE_ACQUIRED, lease, task=lease.claim.task)
        if spans is not None and claims:
            traces = spans.claimed(claims, settings.worker_id, began_ns) or ()
            for lease, trace in zip(leases, traces, strict=False):
                lease.trace = trace
        return self._defer_unknown(leases), may_have_more

    def _defer_unknown(self, leases: list[Lease]) -> list[Lease]:
        known = self._app.tasks
        unknown = [lease for lease in leases if lease.claim.task not in known]
        if not unknown:
            return leases
        self._is_deferring = True
        self._background.spawn(self._defer(unknown))
        return [lease for lease in leases if lease.claim.task in known]

    async def _defer(self, leases: list[Lease]) -> None:
        try:
            await self._outcomes.defer(leases)
        finally:
            self._is_deferring = False

    def _hold(self, claim: Claim, sent_at: float) -> Lease:
        task = self._app.tasks.get(claim.task)
        usual = self._settings.lease_seconds
        lease = Lease(claim, sent_at=sent_at, lease_seconds=usual)
        own = None if task is None else task.settings.lease_seconds
        if claim.overrides_json and (override := claim.override("lease")) is not None:
            own = max(override, self._settings.shortest_lease_seconds)
        if own is None or own == usual:
            self._held_leases.add(lease)
            return lease
        lease.lease_seconds = own
        lease.deadline = min(lease.deadline, sent_at + own)
        self._held_leases.add(lease)
        self._heartbeat.beat_now()
        return lease

    def _flush_metrics(self) -> None:
        meter.current.flush(steady_now(), running=self._slots.running)


_HORIZON_SECONDS = 0.05


_SAMPLE_SECONDS = 0.002


def whole_batches(ahead: int, size: int) -> int:
    """How many jobs of batch handlers to claim ahead, so that batches are full.

    `ahead` jobs are expected to start within the horizon. One batch may wait for ten times as long, which is
    as long as the slots buffer it. Slower batches are claimed when a slot is free.
    """
    if ahead >= size:
        return ahead - ahead % size
    return size if ahead * 10 >= size else 0


class ClaimAhead:
    """Estimates how many attempts will start soon, from the rate of ended ones.

    Short jobs are claimed ahead of the slots, many in one round trip. Long ones are not: a job must not
    wait in this worker's buffer while another worker is idle.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._ended = 0
        self._since = 0.0
        self._per_second = 0.0

    def jobs(self, now: float, *, ended: int) -> int:
        """`ended` counts the attempts that have ended since the worker began."""
        elapsed = now - self._since
        if elapsed >= _SAMPLE_SECONDS:
            newest = (ended - self._ended) / elapsed
            # A lower rate counts at once, a higher one by half: better too few buffered jobs than too many.
            self._per_second = min(newest, (self._per_second + newest) / 2)
            self._ended, self._since = ended, now
        return min(self._limit, int(self._per_second * _HORIZON_SECONDS))


class TakeoverMetrics:
    """Counts takeovers, on its own session, which is opened for the first of them."""

    def __init__(self, session: ReconnectingSession, background: BackgroundTasks) -> None:
        self._session = session
        self._background = background

    def count(self, claims: Sequence[Claim]) -> None:
        if taken_over := [claim for claim in claims if claim.crashes > 0]:
            self._background.spawn(self._count(taken_over))

    async def _count(self, claims: Sequence[Claim]) -> None:
        try:
            takeovers = await self._session.run(lost_attempts.takeovers(claims))
        except (FaultlineError, DriverError):
            return  # one count less; the session has counted the error
        for takeover in takeovers:
            meter.current.taken_over(takeover.cause, takeover.recovery_seconds)

    async def close(self) -> None:
        await self._session.close()


_FULL_LOOK_SECONDS = 0.25


_FULL_LOOK_SHARE = 20  # full claims take at most 1/20 of the time


_MAX_LANES = 100  # the lanes used last: every claim sends them all


class ClaimCursor:
    """The position of the last claim, from which the next claim continues.

    Finished jobs leave entries in the index that claims read until vacuum removes them, and vacuum cannot
    remove them while any old snapshot exists. A claim that continues after the last claimed job does not
    read them again. A job that was queued again may lie before that position, so some claims start at the
    beginning: the longer such a full claim takes, the fewer of them.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], Claim] = {}
        self._full_look_at = 0.0

    def forget(self) -> None:
        """Make the next claim a full one: jobs became due that lie before the cursor."""
        self._full_look_at = 0.0

    def resume_after(self, now: float) -> str | None:
        """The argument of `protocol.claim`; None when a full claim is due."""
        if not self._last or now >= self._full_look_at:
            return None
        lanes: dict[str, dict[str, list[str]]] = {}
        for (queue, priority), claim in self._last.items():
            lanes.setdefault(queue, {})[str(priority)] = [claim.due_at, claim.id]
        return orjson.dumps(lanes).decode()

    def advance(
        self, claims: Sequence[Claim], *, was_full: bool, began: float, ended: float
    ) -> None:
        """Record a claim; `claims` are in the order in which PostgreSQL returned them."""
        for lane, claim in {(claim.queue, claim.priority): claim for claim in claims}.items():
            self._last.pop(lane, None)  # keep the most recently used lane last
            self._last[lane] = claim
        while len(self._last) > _MAX_LANES:
            del self._last[next(iter(self._last))]
        if was_full:
            cost = _FULL_LOOK_SHARE * (ended - began)
            self._full_look_at = ended + max(_FULL_LOOK_SECONDS, cost)
