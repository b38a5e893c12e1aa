"""Detects a blocked event loop, and does from a thread what the loop cannot do.

An async handler that never yields stops the whole loop: no other job goes on, no timeout fires, no signal
is acted on. A thread checks a counter that the loop increments. If it has not changed for `stall_seconds`,
the thread logs where the loop is blocked. The heartbeat's thread then releases the leases whose handlers
have not started, and stops renewing those that need the loop, so that other workers run these jobs. Handlers
in threads and child processes go on, and their leases are renewed until their outcome needs the loop.

The process is ended when the timeout of the blocking handler has passed, or when the worker is stopping and
its drain time is over. This needs `end_process`, which only the owner of the process passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from faultline.config import WorkerSettings
from faultline.errors import AttemptTimeout, FaultlineError
from faultline.events import Event, emit
from faultline.model import Claim
from faultline.postgres.driver import DriverError
from faultline.postgres.sessions import Connection, run
from faultline.retry_policy import RetryDecision
from faultline.statements import protocol, workers
from faultline.statements.statement import Statement
from faultline.steady import steady_now
from faultline.workers import stacks
from faultline.workers.attempt import AbortCause, Attempt
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import HeldLeases, Lease
from faultline.workers.stacks import Stack

_LONGEST_LOOK_SECONDS = 0.5
# At the end of the drain time, a loop that has been still for this long counts as blocked.
_STOP_SECONDS = 1.0
_WRITE_SECONDS = 2.0
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '200ms'"


class Blockage(NamedTuple):
    since: float
    stack: Stack | None
    attempt: Attempt | None  # the attempt whose handler blocks the loop, if it is known


class LoopWatch:
    """Watches one event loop from a thread. `end_process` does not return."""

    def __init__(
        self,
        settings: WorkerSettings,
        held_leases: HeldLeases,
        attempts: Collection[Attempt],
        decide_retry: Callable[[Claim, Exception], RetryDecision],
        end_process: Callable[[], object] | None = None,
    ) -> None:
        self._settings = settings
        self._held_leases = held_leases
        self._attempts = attempts
        self._decide_retry = decide_retry
        self._end_process = end_process
        self._look_seconds = min(settings.stall_seconds / 10, _LONGEST_LOOK_SECONDS)
        self._heartbeat: Heartbeat | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: int | None = None
        self._turns = 0
        self._blockage: Blockage | None = None
        self._stop_at: float | None = None  # when a stopping worker should have ended
        self._is_signalled = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faultline-loop-watch", daemon=True)

    def start(self, heartbeat: Heartbeat) -> None:
        """Start watching; called on the event loop to watch."""
        self._heartbeat = heartbeat
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._turn()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def stop_requested(self, *, by_signal: bool) -> None:
        """Start the drain time; a second signal ends it. May be called from any thread."""
        now = steady_now()
        if self._stop_at is None:
            self._stop_at = now + self._settings.drain_seconds
        elif by_signal and self._is_signalled:
            self._stop_at = now
        self._is_signalled = self._is_signalled or by_signal

    def may_renew(self, lease: Lease) -> bool:
        return self._blockage is None or not lease.needs_loop

    def _turn(self) -> None:
        self._turns += 1
        if self._loop is not None and not self._stopping.is_set():
            self._loop.call_later(self._look_seconds, self._turn)

    # ── in the thread ────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        seen_turns, still, looked_at = self._turns, 0.0, steady_now()
        while not self._stopping.wait(self._look_seconds):
            now = steady_now()
            # After SIGSTOP or a suspend this thread did not run either: count at most two intervals.
            elapsed, looked_at = min(now - looked_at, 2 * self._look_seconds), now
            if self._turns != seen_turns:
                seen_turns, still = self._turns, 0.0
                self._resumed(now)
                continue
            still += elapsed
            if still >= self._settings.stall_seconds and self._blockage is None:
                self._blocked(now - still)
            if self._blockage is not None:
                self._time_out(self._blockage, now)
            if self._stop_at is not None and now >= self._stop_at and still >= _STOP_SECONDS:
                self._end("the worker is stopping, and its event loop is blocked", None)

    def _blocked(self, since: float) -> None:
        stack, attempt = stacks.of_thread(self._loop_thread), self._blocking_attempt()
        # From here on the heartbeat does not renew the leases that need the loop.
        self._blockage = Blockage(since, stack, attempt)
        withdrawn = [lease for lease in self._held_leases if lease.withdraw()]
        for lease in withdrawn:
            self._held_leases.remove(lease)
        emit(
            Event.LOOP_BLOCKED,
            worker=self._settings.worker_id,
            seconds=round(steady_now() - since, 3),
            job_id=None if attempt is None else attempt.claim.id,
            token=None if attempt is None else attempt.claim.fencing_token,
            task=None if attempt is None else attempt.claim.task,
            frame=None if stack is None else stack.frame,
            stack=None if stack is None else stack.text,
            released=len(withdrawn),
        )
        self._run_in_heartbeat(lambda conn: self._release(conn, withdrawn))
        self._run_in_heartbeat(self._report)

    def _resumed(self, now: float) -> None:
        blockage, self._blockage = self._blockage, None
        if blockage is not None:
            seconds = round(now - blockage.since, 3)
            emit(Event.LOOP_RESUMED, worker=self._settings.worker_id, blocked_seconds=seconds)
            self._run_in_heartbeat(self._report)

    def _blocking_attempt(self) -> Attempt | None:
        # the set changed while it was read, so the loop turns
        with contextlib.suppress(RuntimeError):
            current = asyncio.current_task(self._loop)
            for attempt in self._attempts:
                if current is not None and attempt.handler_task is current:
                    return attempt
        return None

    def _time_out(self, blockage: Blockage, now: float) -> None:
        """Do what the loop's timers would do. A handler in a thread can be ended here."""
        try:
            due = [each for each in tuple(self._attempts) if each.is_overdue(now)]
        except RuntimeError:  # the set changed while it was read, so the loop turns
            return
        for attempt in due:
            if attempt.is_in_thread:
                attempt.abort(AbortCause.TIMEOUT)
            elif blockage.attempt in (attempt, None):
                limit = attempt.timeout_seconds
                reason = (
                    f"{attempt.task.name} ran longer than {limit:g} s and blocks the event loop"
                )
                self._end(reason, attempt)

    def _end(self, reason: str, timed_out: Attempt | None) -> None:
        if self._end_process is None:
            return
        stack = stacks.of_thread(self._loop_thread)
        emit(
            Event.DEGRADED,
            reason=f"{reason}: the process ends",
            worker=self._settings.worker_id,
            frame=None if stack is None else stack.frame,
            stack=None if stack is None else stack.text,
        )
        is_written = threading.Event()
        self._run_in_heartbeat(
            lambda conn: self._write_outcomes(conn, timed_out, stack, is_written)
        )
        is_written.wait(_WRITE_SECONDS)
        self._end_process()

    # ── in the heartbeat's thread, which has a session ───────────────────────────────────────────

    def _run_in_heartbeat(self, call: Callable[[Connection], None]) -> None:
        if self._heartbeat is not None:
            self._heartbeat.run_soon(call)

    def _release(self, conn: Connection, leases: Collection[Lease]) -> None:
        for lease in leases:
            if _persist(conn, protocol.release(lease.claim)):
                emit(
                    Event.JOB_RELEASED,
                    job_id=lease.claim.id,
                    token=lease.claim.fencing_token,
                    worker=self._settings.worker_id,
                )

    def _report(self, conn: Connection) -> None:
        """Record in the registry where the loop is blocked, or that it is not."""
        blockage, worker = self._blockage, self._settings.worker_id
        if blockage is None:
            statement = workers.report_blocked(worker, None)
        else:
            attempt, stack = blockage.attempt, blockage.stack
            statement = workers.report_blocked(
                worker,
                steady_now() - blockage.since,
                job_id=None if attempt is None else attempt.claim.job_id,
                frame=None if stack is None else stack.frame,
                stack=None if stack is None else stack.text,
            )
        run(conn, statement)

    def _write_outcomes(
        self,
        conn: Connection,
        timed_out: Attempt | None,
        stack: Stack | None,
        is_written: threading.Event,
    ) -> None:
        """Fail the attempt that timed out; release the leases that only need the loop.

        A handler in a thread still runs: its job is left to the reconciler.
        """
        give_up_at = steady_now() + _WRITE_SECONDS
        for lease in self._held_leases:
            if steady_now() > give_up_at:
                break
            if timed_out is not None and lease in timed_out.leases:
                limit = timed_out.timeout_seconds
                error = AttemptTimeout(f"{timed_out.task.name} ran longer than {limit:g} s")
                text = f"{type(error).__name__}: {error}; it blocked the event loop"
                where = "" if stack is None else f" at {stack.frame}\n\n{stack.text}"
                delay, gives_up = self._decide_retry(lease.claim, error)
                statement = protocol.fail(
                    lease.claim,
                    error=text + where,
                    retry_seconds=delay,
                    reason="gave_up" if gives_up else None,
                )
                _persist(conn, statement)
            elif lease.needs_loop:
                self._release(conn, [lease])
        is_written.set()


def _persist(conn: Connection, statement: Statement[Any]) -> bool:
    """Run a statement. False if the row is locked or the lease is lost."""
    try:
        with conn.transaction():
            conn.execute(_LOCK_TIMEOUT)
            run(conn, statement)
    except (FaultlineError, DriverError):
        if conn.closed:
            raise
        return False
    return True
