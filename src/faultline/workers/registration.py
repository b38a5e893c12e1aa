"""A worker's row in the registry, and the advisory lock that shows it is alive."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from types import MappingProxyType

from faultline.config import WorkerSettings
from faultline.errors import FaultlineError, StaleLease
from faultline.events import Event, emit, log
from faultline.metrics import meter
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient
from faultline.postgres.sessions import AsyncConnection, run_async
from faultline.schedules import Schedule
from faultline.statements import protocol, schedules, server, workers
from faultline.statements.clock import database_time
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement
from faultline.workers.bounded_calls import BoundedCalls
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import HeldLeases
from faultline.workers.served_queues import ServedQueues
from faultline.workers.started_lines import started_lines

_DURABILITY = ("fsync", "full_page_writes", "synchronous_commit")
_LAST_WRITE_SECONDS = 2.0


class Registration:
    """Renewed by every new connection of the control session."""

    def __init__(
        self,
        settings: WorkerSettings,
        queues: ServedQueues,
        held_leases: HeldLeases,
        heartbeat: Heartbeat,
        calls: BoundedCalls,
        declared: Mapping[str, Schedule] = MappingProxyType({}),
    ) -> None:
        self._settings = settings
        self._queues = queues
        self._is_pooled = False
        self._held_leases = held_leases
        self._heartbeat = heartbeat
        self._calls = calls
        self._schedules = declared

    async def register(self, conn: AsyncConnection, session: Session) -> None:
        settings = self._settings
        self._is_pooled = session.is_pooled
        lock_key = await run_async(conn, self._statement())
        await self._declare_schedules(conn)
        # Before the first job, because its latency is measured by this clock.
        if (clock := meter.current.clock) is not None:
            sent_at = time.monotonic()
            clock.learn(await run_async(conn, database_time()), sent_at=sent_at)
        if self._heartbeat.is_started:
            self._heartbeat.hold(lock_key)
        else:
            self._heartbeat.start(lock_key=lock_key)
            self._say_started(session)
            if settings.warns_of_weak_durability:
                await self._say_weak_durability(conn)
        # A claim without an answer may have left leases that this worker does not know.
        for claim in await run_async(conn, protocol.leases_of(settings.worker_id)):
            if claim not in self._held_leases:
                with contextlib.suppress(StaleLease):
                    await run_async(conn, protocol.release(claim))

    async def _declare_schedules(self, conn: AsyncConnection) -> None:
        """Write the schedules of the application's code into the database."""
        if not self._schedules:
            return
        definitions = [schedule.definition for schedule in self._schedules.values()]
        worker = self._settings.worker_id
        self._heartbeat.declaration = declaration = schedules.declare(worker, definitions)
        for name, outcome in await run_async(conn, declaration):
            if outcome == "refused":
                reason = (
                    "an operator's schedule has this name: rename one of them, or remove that one"
                )
                emit(Event.SCHEDULE_REFUSED, schedule=name, reason=reason)
            elif outcome != "unchanged":
                emit(Event.SCHEDULE_DECLARED, schedule=name, outcome=outcome)

    def _statement(self) -> Statement[int]:
        self._heartbeat.registered_queues = self._queues.names
        return workers.register_worker(
            self._settings.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self._queues.names,
            holds_locks=not self._is_pooled,
        )

    async def update_queues(self, session: ReconnectingSession) -> None:
        """Write the served queues into the registry, after they have changed."""
        self._heartbeat.hold(await session.run(self._statement()))

    def _say_started(self, session: Session) -> None:
        settings = self._settings
        after_silence = after_crash = in_large_fleet = settings.recovery_after_silence_seconds
        if session.is_pooled:
            emit(
                Event.DEGRADED,
                reason="a pooler is in between: no session locks, so that a dead worker is noticed"
                " only when its leases run out",
            )
        else:
            after_crash = settings.recovery_after_crash_seconds
            in_large_fleet = settings.recovery_in_large_fleet_seconds
        if log.is_text:
            for line in started_lines(
                settings,
                tasks=list(self._queues.tasks),
                queues=self._queues.names,
                is_every=self._queues.is_every,
                after_crash_seconds=after_crash,
                after_silence_seconds=after_silence,
            ):
                log.line("info", line, {})
            return
        emit(
            Event.WORKER_STARTED,
            worker=settings.worker_id,
            queues=list(self._queues.names),
            concurrency=settings.concurrency,
            **_shares(settings),
            lease_seconds=settings.lease_seconds,
            recovery_after_crash_seconds=round(after_crash, 3),
            recovery_in_large_fleet_seconds=round(in_large_fleet, 3),
            recovery_after_silence_seconds=round(after_silence, 3),
            recovery_after_stall_seconds=round(settings.recovery_after_stall_seconds, 3),
        )

    @staticmethod
    async def _say_weak_durability(conn: AsyncConnection) -> None:
        found = await run_async(conn, server.settings(_DURABILITY))
        if weak := [name for name in _DURABILITY if found.get(name) == "off"]:
            emit(
                Event.DEGRADED,
                reason=f"{' and '.join(weak)} off: a crash of the server may lose committed jobs",
            )

    async def mark_draining(self, session: ReconnectingSession) -> None:
        """Mark the worker as draining, on a session that registers it again if needed.

        A new registration releases the leases of an unanswered claim.
        """
        await self._if_possible(session, workers.drain_worker(self._settings.worker_id))

    async def remove(self, session: ReconnectingSession) -> None:
        await self._if_possible(session, workers.deregister_worker(self._settings.worker_id))

    async def _if_possible(self, session: ReconnectingSession, statement: Statement[None]) -> None:
        """Run a statement if the database answers; otherwise the reconciler cleans up."""
        try:
            await self._calls.within(_LAST_WRITE_SECONDS, session.run(statement))
        except (FaultlineError, DriverError) as error:
            if not is_transient(error):
                raise


def _shares(settings: WorkerSettings) -> dict[str, dict[str, int]]:
    """The slots and weights of queues, for an event; nothing if there are none."""
    shares = settings.queue_shares
    given = {
        "queue_slots": {name: share.slots for name, share in shares.items() if share.slots},
        "queue_weights": {name: share.weight for name, share in shares.items() if share.weight},
    }
    return {field: values for field, values in given.items() if values}
