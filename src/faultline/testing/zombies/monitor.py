"""Monitors one attempt: records its points and injects the planned fault."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextvars import ContextVar
from types import CodeType
from typing import Any

from faultline.job import Job
from faultline.postgres.driver import OperationalError, TransactionStatus
from faultline.postgres.sessions import AsyncConnection, Connection
from faultline.testing.zombies.points import (
    Fault,
    Point,
    PointKind,
    Suspension,
    calling_location,
    describe_call,
    is_connection_setup,
    location,
)
from faultline.testing.zombies.report import Story

current_monitor: ContextVar[AttemptMonitor | None] = ContextVar(
    "faultline_attempt_monitor", default=None
)
# Longer than any run: the experiment always resumes or kills the attempt.
_MAX_SUSPENDED_SECONDS = 120.0


class AttemptKilled(BaseException):
    """Raised in a killed handler after the run, to unwind its stack."""


class PlannedFault:
    """A fault at one point of one attempt; can resume or kill the suspended attempt."""

    def __init__(self, point: Point, fault: Fault) -> None:
        self.point = point
        self.fault = fault
        self.reached = threading.Event()
        self._gate = threading.Event()
        self._killed = False

    def applies_to(self, point: Point, *, after_call: bool) -> bool:
        if self.reached.is_set() or after_call != (self.fault is Fault.LOST_ANSWER):
            return False
        return point == self.point

    def suspend(self) -> None:
        """Block the thread, and so its event loop, until resume() or kill() is called."""
        self.reached.set()
        self._gate.wait(_MAX_SUSPENDED_SECONDS)
        if self._killed:
            raise AttemptKilled

    def resume(self) -> None:
        self._gate.set()

    def kill(self) -> None:
        self._killed = True
        self._gate.set()


class AttemptMonitor:
    def __init__(
        self, actor: str, job: Job, handler: CodeType, story: Story, planned: PlannedFault | None
    ) -> None:
        self.actor = actor
        self.job = job
        self.handler = handler
        self.points: list[Point] = []
        self.answers: set[Point] = set()  # calls that ended a transaction
        self.connections: set[Connection | AsyncConnection] = set()
        self.is_disconnected = False
        self.ended = threading.Event()
        self._story = story
        self._planned = planned
        self._seen: Counter[tuple[PointKind, str, str]] = Counter()
        self._lock = threading.Lock()
        self._suspension: Suspension | None = None

    def log(self, text: str) -> None:
        self._story.add(text, actor=self.actor, token=self.job.token)

    def reach(self, kind: PointKind, where: str, what: str) -> Point:
        """Record a point, block here if the fault is planned for it, and log the step."""
        with self._lock:
            self._seen[kind, where, what] += 1
            point = Point(kind, where, what, self._seen[kind, where, what])
            self.points.append(point)
        if kind is PointKind.AWAIT:  # this step has already begun
            self.log(str(point))
        if self._planned is not None and self._planned.applies_to(point, after_call=False):
            self._planned.suspend()
        if kind in (PointKind.DATABASE, PointKind.OUTSIDE):
            fails = kind is PointKind.DATABASE and self.is_disconnected
            self.log(f"{point}  ✗ no connection" if fails else str(point))
        return point

    def end(self) -> None:
        self.reach(PointKind.END, location(self.handler, None), "the handler has returned")

    def suspended(self, coroutine: Any) -> None:
        suspension = Suspension.of(coroutine, self.handler)
        before, self._suspension = self._suspension, suspension
        if suspension is None:
            return
        if before is not None and before.awaited is suspension.awaited:
            return  # still the same await
        self.reach(PointKind.AWAIT, suspension.where, suspension.what)

    # ── calls to the database ────────────────────────────────────────────────────────────────────

    def before_call(
        self, conn: Connection | AsyncConnection, generator: Generator[Any, Any, Any]
    ) -> Point | None:
        self.connections.add(conn)
        is_idle = conn.pgconn.transaction_status == TransactionStatus.IDLE
        caller = sys._getframe(2)
        what = describe_call(generator, is_idle=is_idle)
        point = None
        if what is not None and not is_connection_setup(caller):
            where = calling_location(caller, self.handler)
            point = self.reach(PointKind.DATABASE, where, what)
        if self.is_disconnected:
            break_connection(conn)
        return point

    def after_call(self, conn: Connection | AsyncConnection, point: Point) -> None:
        if conn.pgconn.transaction_status != TransactionStatus.IDLE:
            return
        self.answers.add(point)
        if self._planned is not None and self._planned.applies_to(point, after_call=True):
            self._planned.reached.set()
            self._story.add(f"the reply to {point.what} is lost, and the session ends")
            break_connection(conn)

    def drop_connections(self) -> None:
        """Close the connections that a killed handler left open."""
        for conn in self.connections:
            conn.pgconn.finish()


def break_connection(conn: Connection | AsyncConnection) -> None:
    conn.pgconn.finish()
    raise OperationalError("server closed the connection unexpectedly (injected by zombies)")
