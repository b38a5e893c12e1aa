"""One attempt under observation: it notes each point it comes to, and can be struck at one of them."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextvars import ContextVar
from types import CodeType
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from faultline.job import Job
from faultline.postgres.sessions import AsyncConnection, Connection
from faultline.testing.zombies.faults import Fault
from faultline.testing.zombies.points import (
    Point,
    PointKind,
    Suspension,
    calling_place,
    described_call,
    is_preparation,
    place,
)
from faultline.testing.zombies.story import Story

current: ContextVar[Watch | None] = ContextVar("faultline_zombie_watch", default=None)
_HOLD_SECONDS = 120.0  # longer than any run may take: whoever holds an attempt also lets it go


class Buried(BaseException):
    """Raised in a handler that was killed, long after: it unwinds when nobody looks any more."""


class Strike:
    """A fault that waits for one attempt at one point, and the ways to let the attempt go on."""

    def __init__(self, point: Point, fault: Fault) -> None:
        self.point = point
        self.fault = fault
        self.reached = threading.Event()
        self._gate = threading.Event()
        self._buried = False

    def hits(self, point: Point, *, afterwards: bool) -> bool:
        if self.reached.is_set() or afterwards != (self.fault is Fault.LOST_ANSWER):
            return False
        return point == self.point

    def hold(self) -> None:
        """Stop here, event loop and all, until somebody lets go or buries the attempt."""
        self.reached.set()
        self._gate.wait(_HOLD_SECONDS)
        if self._buried:
            raise Buried

    def let_go(self) -> None:
        self._gate.set()

    def bury(self) -> None:
        self._buried = True
        self._gate.set()


class Watch:
    def __init__(
        self, actor: str, job: Job, handler: CodeType, story: Story, strike: Strike | None
    ) -> None:
        self.actor = actor
        self.job = job
        self.handler = handler
        self.points: list[Point] = []
        self.answers: set[Point] = set()  # after these the transaction was over
        self.connections: set[Connection | AsyncConnection] = set()
        self.is_cut_off = False
        self.ended = threading.Event()
        self._story = story
        self._strike = strike
        self._seen: Counter[tuple[PointKind, str, str]] = Counter()
        self._lock = threading.Lock()
        self._suspension: Suspension | None = None

    def tell(self, text: str) -> None:
        self._story.tell(text, actor=self.actor, token=self.job.token)

    def arrive(self, kind: PointKind, where: str, what: str) -> Point:
        """The handler is at a point. What it is about to do is told when it is let through."""
        with self._lock:
            self._seen[kind, where, what] += 1
            point = Point(kind, where, what, self._seen[kind, where, what])
            self.points.append(point)
        if kind is PointKind.AWAIT:  # this one is already under way
            self.tell(str(point))
        if self._strike is not None and self._strike.hits(point, afterwards=False):
            self._strike.hold()
        if kind in (PointKind.DATABASE, PointKind.OUTSIDE):
            cut = kind is PointKind.DATABASE and self.is_cut_off
            self.tell(f"{point}  ✗ no connection" if cut else str(point))
        return point

    def end(self) -> None:
        self.arrive(PointKind.END, place(self.handler, None), "the handler has returned")

    def suspended(self, coroutine: Any) -> None:
        suspension = Suspension.of(coroutine, self.handler)
        before, self._suspension = self._suspension, suspension
        if suspension is None:
            return
        if before is not None and before.awaited is suspension.awaited:
            return  # still the same await
        self.arrive(PointKind.AWAIT, suspension.where, suspension.what)

    # ── calls to the database ────────────────────────────────────────────────────────────────────

    def before_call(
        self, conn: Connection | AsyncConnection, generator: Generator[Any, Any, Any]
    ) -> Point | None:
        self.connections.add(conn)
        is_idle = conn.pgconn.transaction_status == TransactionStatus.IDLE
        caller = sys._getframe(2)
        what = described_call(generator, is_idle=is_idle)
        point = None
        if what is not None and not is_preparation(caller):
            where = calling_place(caller, self.handler)
            point = self.arrive(PointKind.DATABASE, where, what)
        if self.is_cut_off:
            lose(conn)
        return point

    def after_call(self, conn: Connection | AsyncConnection, point: Point) -> None:
        if conn.pgconn.transaction_status != TransactionStatus.IDLE:
            return
        self.answers.add(point)
        if self._strike is not None and self._strike.hits(point, afterwards=True):
            self._strike.reached.set()
            self._story.tell(f"the answer to {point.what} is lost, and the session with it")
            lose(conn)

    def drop_connections(self) -> None:
        """What a killed handler left open: nobody will close it any more."""
        for conn in self.connections:
            conn.pgconn.finish()


def lose(conn: Connection | AsyncConnection) -> None:
    conn.pgconn.finish()
    raise psycopg.OperationalError("server closed the connection unexpectedly (a test's fault)")
