"""Monitors one attempt: records its points and injects the planned fault."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections import Counter
from contextvars import ContextVar
from types import CodeType
from typing import Any, Protocol

from faultline.job import Job
from faultline.testing.zombies.points import (
    Fault,
    Point,
    PointKind,
    Suspension,
    calling_location,
    is_connection_setup,
    location,
)
from faultline.testing.zombies.report import Story

current_monitor: ContextVar[AttemptMonitor | None] = ContextVar(
    "faultline_attempt_monitor", default=None
)
# Event loops of workers that were killed or disconnected: the worker's own sessions fail as well.
disconnected_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
# Longer than any run: the experiment always resumes or kills the attempt.
_MAX_SUSPENDED_SECONDS = 120.0


class AttemptKilled(BaseException):
    """Raised in a killed handler after the run, to unwind its stack."""


def disconnect_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Let every later database call on this event loop fail."""
    disconnected_loops.add(loop)


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


class MonitoredSession(Protocol):
    """A session of any driver. Two of the same connection are equal."""

    @property
    def is_idle(self) -> bool:
        """Whether it is outside of a transaction."""

    def end(self) -> None:
        """Close it."""

    def break_off(self) -> None:
        """Close it, and raise the driver's error for a session that the server closed."""

    def __hash__(self) -> int: ...


class AttemptMonitor:
    def __init__(
        self, actor: str, job: Job, handler: CodeType, story: Story, planned: PlannedFault | None
    ) -> None:
        self.actor = actor
        self.job = job
        self.handler = handler
        self.points: list[Point] = []
        self.answers: set[Point] = set()  # calls that ended a transaction
        self.sessions: set[MonitoredSession] = set()
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

    def before_call(self, session: MonitoredSession, what: str | None) -> Point | None:
        """Note a call that the driver is about to send; `what` is None without an effect."""
        self.sessions.add(session)
        caller = sys._getframe(2)
        point = None
        if what is not None and not is_connection_setup(caller):
            where = calling_location(caller, self.handler)
            point = self.reach(PointKind.DATABASE, where, what)
        if self.is_disconnected:
            session.break_off()
        return point

    def after_call(self, session: MonitoredSession, point: Point) -> None:
        """Note a call that ended a transaction, and lose its reply if that is planned."""
        if not session.is_idle:
            return
        self.answers.add(point)
        if self._planned is not None and self._planned.applies_to(point, after_call=True):
            self._planned.reached.set()
            self._story.add(f"the reply to {point.what} is lost, and the session ends")
            session.break_off()

    def drop_connections(self) -> None:
        """Close the connections that a killed handler left open."""
        for session in self.sessions:
            session.end()
