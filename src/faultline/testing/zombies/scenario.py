"""One run: a fresh database, one job, one fault at one point of its first attempt, and the job's end."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable
from typing import Any, assert_never
from uuid import UUID

from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.job import Job
from faultline.postgres.sessions import Connection
from faultline.task import Task
from faultline.testing.application import close_pool_here
from faultline.testing.inline_worker import all_queues, work_until_idle
from faultline.testing.shadow import shadow_of
from faultline.testing.zombies import referee
from faultline.testing.zombies.background import Background, connections_left_open
from faultline.testing.zombies.driver import cut_off
from faultline.testing.zombies.faults import Fault
from faultline.testing.zombies.points import PointKind, handler_code
from faultline.testing.zombies.report import NotExercised
from faultline.testing.zombies.stepping import watched
from faultline.testing.zombies.story import Story
from faultline.testing.zombies.watch import Strike, Watch
from faultline.workers import Worker

# Long enough that no heartbeat falls into a run: leases end when the run says so, by the database's
# clock, and the attempt under fault does not learn of it by itself. That is the worst case.
_LEASE_SECONDS = 3_600.0
_OPTIONS = {"lease_seconds": None, "timeout_seconds": None, "process": False}
_LOOK_SECONDS = 0.005
_GRACE_SECONDS = 0.5
# How long an attempt that is cut off goes on before its worker ends it: long enough for a handler that
# has little left to do, on a machine that is busy with other things.
_CUT_OFF_SECONDS = 1.5
_MORE_ROUNDS = 3


class Scenario:
    def __init__(
        self,
        app: Faultline,
        task: Task[Any, Any],
        job_id: UUID,
        conn: Connection,
        *,
        strike: Strike | None,
        limit_seconds: float,
    ) -> None:
        self._app = app
        self._task = task
        self._job_id = job_id
        self._conn = conn
        self._strike = strike
        self._limit_seconds = limit_seconds
        self._queues = tuple(all_queues(app))
        self.story = Story()
        self.first: Watch | None = None  # A's attempt
        self._a: Background | None = None

    # ── the play ─────────────────────────────────────────────────────────────────────────────────

    def play(self) -> None:
        """Until the job has come to an end and nobody works on it any more, except the dead."""
        self._a = self._start("A")
        if self._strike is None:
            self._await_end(self._a, "A")
        elif self._strike.fault is Fault.LOST_ANSWER:
            self._await_end(self._a, "A")
            self._require_reached(self._strike)
        else:
            self._await_strike(self._strike, self._a)
            self._inflict(self._strike, self._a)
        self._finish_job()

    def bury(self) -> None:
        """Nobody looks any more: let whatever was held unwind, and close what it had open."""
        if self._a is None or self._strike is None:
            return
        if self._a.loop is not None:
            cut_off(self._a.loop)
        if self.first is not None:
            self.first.is_cut_off = True
        self._strike.bury()
        self._a.end(self._limit_seconds)
        if self.first is not None:
            self.first.ended.wait(_GRACE_SECONDS)
            self.first.drop_connections()
        # A connection that was being opened is known to nobody, and open until it is collected.
        with connections_left_open():
            gc.collect()

    def _inflict(self, strike: Strike, a: Background) -> None:
        match strike.fault:
            case Fault.CRASH:
                self._tell(f"A is killed {strike.point.moment}")
                self._cut(a)
            case Fault.PAUSE:
                self._pause(strike, a)
            case Fault.SUPERSEDE:
                self._supersede(strike, a)
            case Fault.PARTITION:
                self._partition(strike, a)
            case Fault.LOST_ANSWER:
                raise AssertionError("strikes by itself")
            case _:
                assert_never(strike.fault)

    def _pause(self, strike: Strike, a: Background) -> None:
        self._tell(f"A is stopped {strike.point.moment}; its lease runs out")
        self._end_lease()
        sessions_of_a = referee.other_sessions(self._conn)
        b = self._start("B")
        give_up_at = time.monotonic() + self._limit_seconds
        while not b.is_over and time.monotonic() < give_up_at:
            if referee.somebody_waits_for(self._conn, sessions_of_a):
                self._tell("B waits for a lock that A holds; A comes back")
                strike.let_go()
                break
            b.join(_LOOK_SECONDS)
        else:
            self._tell("A comes back")
            strike.let_go()
        self._await_end(b, "B")
        self._await_end(a, "A")

    def _supersede(self, strike: Strike, a: Background) -> None:
        self._tell(f"A is slow {strike.point.moment}; its lease runs out")
        self._end_lease()
        claim = referee.take(self._conn, self._job_id, "B", self._queues)
        if claim is not None:
            self._tell(
                f"B takes over with token {claim.fencing_token}; A does not know, and goes on"
            )
        strike.let_go()
        self._await_end(a, "A")
        if claim is not None:
            referee.give_back(self._conn, claim)

    def _partition(self, strike: Strike, a: Background) -> None:
        self._tell(f"A loses the database {strike.point.moment}; it goes on without it")
        self._cut(a)
        strike.let_go()
        assert self.first is not None  # noqa: S101 - it has just been struck
        is_at_its_end = strike.point.kind is PointKind.END
        if not self.first.ended.wait(self._limit_seconds if is_at_its_end else _CUT_OFF_SECONDS):
            self._tell("A has had no heartbeat for too long, and ends its attempt")
            self.first.job._lease.lose("deadline")  # type: ignore[attr-defined]
            self.first.ended.wait(_CUT_OFF_SECONDS)
        a.end(self._limit_seconds)

    def _cut(self, a: Background) -> None:
        """Every session of A's ends, on both sides, and there will not be another."""
        assert self.first is not None  # noqa: S101 - it has just been struck
        assert a.loop is not None  # noqa: S101
        cut_off(a.loop)
        self.first.is_cut_off = True
        referee.end_other_sessions(self._conn)
        referee.expire_lease(self._conn, self._job_id)

    def _end_lease(self) -> None:
        if referee.end_idle_holders(self._conn, self._job_id):
            self._tell(
                "PostgreSQL ends A's fenced transaction: it sat idle for longer than the lease"
            )
        referee.expire_lease(self._conn, self._job_id)

    def _finish_job(self) -> None:
        """Whatever is left to do is done by B, with as many attempts as the job may have. Jobs that the
        handler enqueued are run as well."""
        for _ in range(self._task.options.max_attempts + _MORE_ROUNDS):
            state = referee.standing(self._conn, self._job_id).state
            if state in ("succeeded", "failed") and not referee.anything_due(self._conn):
                return
            referee.expire_lease(self._conn, self._job_id)
            referee.make_due(self._conn, self._job_id)
            self._await_end(self._start("B"), "B")

    # ── the cast ─────────────────────────────────────────────────────────────────────────────────

    def _start(self, actor: str) -> Background:
        """A works on this one job and leaves; B works until there is nothing left to do."""
        shadow = shadow_of(
            self._app, lambda task: watched(task, self._watches(actor)), options=_OPTIONS
        )
        settings = WorkerSettings(
            queues=self._queues,
            concurrency=1,
            lease_seconds=_LEASE_SECONDS,
            poll_seconds=0.05,
            drain_seconds=self._limit_seconds,
            max_jobs=1 if actor == "A" else 0,
        )

        async def work() -> None:
            try:
                if actor == "A":
                    await Worker(shadow, settings).run()
                else:
                    await work_until_idle(shadow, settings, timeout_seconds=self._limit_seconds)
            finally:
                await close_pool_here(self._app)

        return Background(work)

    def _watches(self, actor: str) -> Callable[[Task[Any, Any], Job], Watch | None]:
        def make(task: Task[Any, Any], job: Job) -> Watch | None:
            if job.id != self._job_id:
                return None
            strike = self._strike if actor == "A" else None
            watch = Watch(actor, job, handler_code(task.handler), self.story, strike)
            if self.first is None:
                self.first = watch
            watch.tell("begins" if job.token == 1 else "begins, after a takeover")
            return watch

        return make

    def _tell(self, text: str) -> None:
        self.story.tell(text)

    def _await_strike(self, strike: Strike, a: Background) -> None:
        give_up_at = time.monotonic() + self._limit_seconds
        while not strike.reached.wait(_LOOK_SECONDS):
            if a.is_over or time.monotonic() > give_up_at:
                break
        self._require_reached(strike)
        if not referee.await_first_heartbeat(self._conn, self._limit_seconds):
            raise NotExercised("A's worker has no heartbeat")

    def _require_reached(self, strike: Strike) -> None:
        if not strike.reached.is_set():
            raise NotExercised(
                f"{strike.fault}: the handler did not come to {strike.point} a second time",
                hint="a handler must take the same steps whenever it starts from the same data",
            )

    def _await_end(self, actor: Background, name: str) -> None:
        ended = actor.join(self._limit_seconds + _GRACE_SECONDS)
        if actor.error is not None:
            raise NotExercised(f"{name}'s worker failed: {actor.error!r}") from actor.error
        if not ended:
            with contextlib.suppress(RuntimeError):
                actor.end(_GRACE_SECONDS)
            raise NotExercised(f"{name} did not come to an end in {self._limit_seconds:g} s")
