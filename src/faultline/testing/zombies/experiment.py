"""One run of a job with one fault at one point of its first attempt."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, assert_never
from uuid import UUID

from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.job import Job
from faultline.postgres.sessions import Connection
from faultline.task import Task
from faultline.testing.application import close_pool_of_running_loop, instrumented_copy
from faultline.testing.inline_worker import all_queues, work_until_idle
from faultline.testing.zombies import database_control
from faultline.testing.zombies.instrumentation import instrument_handler
from faultline.testing.zombies.monitor import AttemptMonitor, PlannedFault, disconnect_loop
from faultline.testing.zombies.points import Fault, PointKind, handler_code
from faultline.testing.zombies.report import NotExercised, Story
from faultline.workers import Worker

# Long enough that no heartbeat is sent during a run. The experiment expires leases in the database, and no
# heartbeat tells the attempt about it. That is the worst case.
_LEASE_SECONDS = 3_600.0
_OPTIONS = {"lease_seconds": None, "timeout_seconds": None, "process": False}
_POLL_SECONDS = 0.005
_EXTRA_SECONDS = 0.5
# How long a disconnected attempt continues before its worker ends it: enough for a short rest of a handler on
# a busy machine.
_DISCONNECTED_SECONDS = 1.5
_EXTRA_ROUNDS = 3


class Experiment:
    def __init__(
        self,
        app: Faultline,
        task: Task[Any, Any],
        job_ids: Sequence[UUID],
        conn: Connection,
        *,
        planned: PlannedFault | None,
        limit_seconds: float,
    ) -> None:
        self._app = app
        self._task = task
        self._job_id = job_ids[0]  # the one that is taken over
        self._job_ids = job_ids  # of the same batch
        self._conn = conn
        self._planned = planned
        self._limit_seconds = limit_seconds
        self._queues = tuple(all_queues(app))
        self.story = Story()
        self.first: AttemptMonitor | None = None  # A's attempt
        self._a: LoopThread | None = None

    # ── the run ──────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Run the job to its end with the planned fault; a killed attempt stays suspended."""
        self._a = self._start("A")
        if self._planned is None:
            self._await_end(self._a, "A")
        elif self._planned.fault is Fault.LOST_ANSWER:
            self._await_end(self._a, "A")
            self._require_reached(self._planned)
        else:
            self._await_fault(self._planned, self._a)
            self._inject(self._planned, self._a)
        self._finish_job()

    def clean_up(self) -> None:
        """Unwind a suspended attempt after the run, and close its connections."""
        if self._a is None or self._planned is None:
            return
        if self._a.loop is not None:
            disconnect_loop(self._a.loop)
        if self.first is not None:
            self.first.is_disconnected = True
        self._planned.kill()
        self._a.end(self._limit_seconds)
        if self.first is not None:
            self.first.ended.wait(_EXTRA_SECONDS)
            self.first.drop_connections()
        # No object refers to a connection that was being opened: only the collector closes it.
        with ignore_unclosed_connections():
            gc.collect()

    def _inject(self, planned: PlannedFault, a: LoopThread) -> None:
        match planned.fault:
            case Fault.CRASH:
                self._log(f"A is killed {planned.point.moment}")
                self._disconnect(a)
            case Fault.PAUSE:
                self._pause(planned, a)
            case Fault.SUPERSEDE:
                self._supersede(planned, a)
            case Fault.PARTITION:
                self._partition(planned, a)
            case Fault.LOST_ANSWER:
                raise AssertionError("the monitor injects this fault itself")
            case _:
                assert_never(planned.fault)

    def _pause(self, planned: PlannedFault, a: LoopThread) -> None:
        self._log(f"A is stopped {planned.point.moment}; its lease expires")
        self._expire_lease()
        self._expire_all()
        sessions_of_a = database_control.other_sessions(self._conn)
        b = self._start("B")
        deadline = time.monotonic() + self._limit_seconds
        while not b.has_ended and time.monotonic() < deadline:
            if database_control.any_session_waits_for(self._conn, sessions_of_a):
                self._log("B waits for a lock that A holds; A resumes")
                planned.resume()
                break
            b.join(_POLL_SECONDS)
        else:
            self._log("A resumes")
            planned.resume()
        self._await_end(b, "B")
        self._await_end(a, "A")

    def _supersede(self, planned: PlannedFault, a: LoopThread) -> None:
        self._log(f"A is slow {planned.point.moment}; its lease expires")
        self._expire_lease()
        claim = database_control.claim_job(self._conn, self._job_id, "B", self._queues)
        if claim is not None:
            self._log(
                f"B takes over with token {claim.fencing_token}; A does not know, and continues"
            )
        planned.resume()
        self._await_end(a, "A")
        if claim is not None:
            database_control.release(self._conn, claim)

    def _partition(self, planned: PlannedFault, a: LoopThread) -> None:
        self._log(f"A loses the database {planned.point.moment}; it continues without it")
        self._disconnect(a)
        planned.resume()
        assert self.first is not None  # noqa: S101 - the fault was just injected
        is_at_its_end = planned.point.kind is PointKind.END
        if not self.first.ended.wait(
            self._limit_seconds if is_at_its_end else _DISCONNECTED_SECONDS
        ):
            self._log("A could not renew its lease for too long, and ends its attempt")
            self.first.job._lease.lose("deadline")  # type: ignore[attr-defined]
            self.first.ended.wait(_DISCONNECTED_SECONDS)
        a.end(self._limit_seconds)

    def _disconnect(self, a: LoopThread) -> None:
        """End all sessions of A on both sides, and let every new one fail."""
        assert self.first is not None  # noqa: S101 - the fault was just injected
        assert a.loop is not None  # noqa: S101
        disconnect_loop(a.loop)
        self.first.is_disconnected = True
        database_control.end_other_sessions(self._conn)
        self._expire_all()

    def _expire_lease(self) -> None:
        if database_control.end_idle_fenced_transactions(self._conn, self._job_id):
            self._log(
                "PostgreSQL ends A's fenced transaction: it was idle for longer than the lease"
            )
        database_control.expire_lease(self._conn, self._job_id)

    def _finish_job(self) -> None:
        """Let B run the job, and jobs that it enqueued, until it succeeded or failed."""
        for _ in range(self._task.settings.max_attempts + _EXTRA_ROUNDS):
            states = {
                database_control.job_snapshot(self._conn, each).state for each in self._job_ids
            }
            is_over = states <= {"succeeded", "failed"}
            if is_over and not database_control.is_any_job_due(self._conn):
                return
            self._expire_all()
            for job_id in self._job_ids:
                database_control.make_due(self._conn, job_id)
            self._await_end(self._start("B"), "B")

    def _expire_all(self) -> None:
        for job_id in self._job_ids:
            database_control.expire_lease(self._conn, job_id)

    # ── the workers ──────────────────────────────────────────────────────────────────────────────

    def _start(self, actor: str) -> LoopThread:
        """Start a worker: A runs this one job and exits; B runs until no job is due."""
        copy = instrumented_copy(
            self._app,
            lambda task: instrument_handler(task, self._make_monitor(actor)),
            options=_OPTIONS,
        )
        settings = WorkerSettings(
            queues=self._queues,
            concurrency=1,
            lease_seconds=_LEASE_SECONDS,
            poll_seconds=0.05,
            drain_seconds=self._limit_seconds,
            max_jobs=len(self._job_ids) if actor == "A" else 0,
            warns_of_weak_durability=False,
        )

        async def work() -> None:
            try:
                if actor == "A":
                    await Worker(copy, settings).run()
                else:
                    await work_until_idle(copy, settings, timeout_seconds=self._limit_seconds)
            finally:
                await close_pool_of_running_loop(self._app)

        return LoopThread(work)

    def _make_monitor(
        self, actor: str
    ) -> Callable[[Task[Any, Any], Sequence[Job]], AttemptMonitor | None]:
        def make(task: Task[Any, Any], jobs: Sequence[Job]) -> AttemptMonitor | None:
            job = next((job for job in jobs if job.id == self._job_id), None)
            if job is None:
                return None
            planned = self._planned if actor == "A" else None
            monitor = AttemptMonitor(actor, job, handler_code(task.handler), self.story, planned)
            if self.first is None:
                self.first = monitor
            monitor.log("begins" if job.token == 1 else "begins, after a takeover")
            return monitor

        return make

    def _log(self, text: str) -> None:
        self.story.add(text)

    def _await_fault(self, planned: PlannedFault, a: LoopThread) -> None:
        deadline = time.monotonic() + self._limit_seconds
        while not planned.reached.wait(_POLL_SECONDS):
            if a.has_ended or time.monotonic() > deadline:
                break
        self._require_reached(planned)
        if not database_control.wait_for_first_heartbeat(self._conn, self._limit_seconds):
            raise NotExercised("A's worker sent no heartbeat")

    def _require_reached(self, planned: PlannedFault) -> None:
        if not planned.reached.is_set():
            raise NotExercised(
                f"{planned.fault}: the handler did not reach {planned.point} again",
                hint="a handler must take the same steps when it starts from the same data",
            )

    def _await_end(self, worker: LoopThread, name: str) -> None:
        ended = worker.join(self._limit_seconds + _EXTRA_SECONDS)
        if worker.error is not None:
            raise NotExercised(f"{name}'s worker failed: {worker.error!r}") from worker.error
        if not ended:
            with contextlib.suppress(RuntimeError):
                worker.end(_EXTRA_SECONDS)
            raise NotExercised(
                f"{name} did not end within {self._limit_seconds:g} s",
                hint="raise run_limit_seconds if the handler needs longer",
            )


_START_SECONDS = 30.0


_CANCEL_SECONDS = 0.5


class LoopThread:
    """Runs a coroutine on a new event loop in a new thread, and can cancel it."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._work = work
        self._ready = threading.Event()
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="faultline-zombie", daemon=True)
        self._thread.start()
        self._ready.wait(_START_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            return
        except BaseException as error:
            self.error = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        # A worker that is cancelled while it runs reports many errors that do not matter here.
        self.loop.set_exception_handler(lambda loop, context: None)
        self._ready.set()
        await self._work()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread; return whether it has ended."""
        self._thread.join(timeout_seconds)
        return self.has_ended

    def end(self, timeout_seconds: float) -> bool:
        """Cancel all tasks until the thread ends: a coroutine may swallow a cancellation."""
        deadline = time.monotonic() + timeout_seconds
        with ignore_unclosed_connections():
            while not self.has_ended and time.monotonic() < deadline:
                if self.loop is not None:
                    # RuntimeError: the loop is closed, so the thread has ended.
                    with contextlib.suppress(RuntimeError):
                        self.loop.call_soon_threadsafe(self._cancel_all)
                self._thread.join(_CANCEL_SECONDS)
        return self.has_ended

    def _cancel_all(self) -> None:
        """Cancel every task of the loop, not only the main one.

        A cancelled attempt tries to record its outcome in the unreachable database until its lease ends.
        """
        for task in asyncio.all_tasks(self.loop):
            task.cancel()


@contextlib.contextmanager
def ignore_unclosed_connections() -> Iterator[None]:
    """Ignore the ResourceWarnings about open connections of a killed worker."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"<(psycopg|faultline)\..* was deleted while still open", ResourceWarning
        )
        yield
