"""Renews the leases of a worker, from its own thread and its own connection.

A handler that blocks the event loop or uses all connections does not delay it. The answer to a heartbeat also
carries an operator's request to drain.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.events import Event, emit, log
from faultline.metrics import meter
from faultline.model import Renewal
from faultline.postgres.answer_limit import AnswerLimit
from faultline.postgres.driver import DriverError
from faultline.postgres.outage import outage_of
from faultline.postgres.reconnecting import Backoff
from faultline.postgres.sessions import Connection, open_session, run
from faultline.statements import protocol, workers
from faultline.statements.clock import database_time
from faultline.statements.protocol import Beat
from faultline.statements.statement import Statement
from faultline.steady import steady_now
from faultline.workers.leases import HeldLeases, Lease

_BATCH = 1_000
_PURPOSE = "heartbeat"
# threading.Event waits by a clock that stops while the machine is suspended, but leases expire meanwhile. The
# thread therefore checks the steady clock this often.
_CLOCK_CHECK_SECONDS = 1.0


class Heartbeat:
    """A thread that renews leases; calls `on_drain` once when a drain is requested."""

    def __init__(
        self,
        url: str,
        settings: WorkerSettings,
        held_leases: HeldLeases,
        *,
        on_drain: Callable[[], None] = lambda: None,
        may_renew: Callable[[Lease], bool] = lambda lease: True,
    ) -> None:
        self._url = url
        self._settings = settings
        self._held_leases = held_leases
        self._on_drain = on_drain
        self._may_renew = may_renew
        self._calls: deque[Callable[[Connection], None]] = deque()
        self._is_drain_reported = False
        self.registered_queues: Sequence[str] = ()  # as in the worker's row
        self.declaration: Statement[Any] | None = None  # of the schedules in the worker's code
        self.due_at: float | None = None  # None while it waits for the database
        self.answered_at: float | None = None  # the last time that every statement was answered
        self._answer_limit = AnswerLimit(settings.answer_seconds)
        self._outage = outage_of(url)
        self._worked_at: float | None = None  # when this connection was opened, or answered last
        self._conn: Connection | None = None
        self._lock_key: int | None = None
        self._holds_lock = False  # in this session, in addition to the one that registered
        self._reported_unheld_lock = False
        self._is_pooled = False
        self._was_open = False
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="faultline-heartbeat", daemon=True)

    def start(self, *, lock_key: int) -> None:
        self._lock_key = lock_key
        self._thread.start()

    def hold(self, lock_key: int) -> None:
        """Hold this lock from the next heartbeat on: a new registration may change it."""
        if lock_key != self._lock_key:
            self._lock_key, self._holds_lock = lock_key, False

    @property
    def is_started(self) -> bool:
        return self._lock_key is not None

    @property
    def has_ended(self) -> bool:
        was_started = self._thread.ident is not None
        return was_started and not self._stopping and not self._thread.is_alive()

    def beat_now(self) -> None:
        """Renew now, for a lease of unusual length or to read a drain request."""
        self._wake.set()

    def run_soon(self, call: Callable[[Connection], None]) -> None:
        """Run a call at once in the heartbeat's thread, on its session. From any thread.

        The call is repeated if the connection breaks meanwhile.
        """
        self._calls.append(call)
        self._wake.set()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Stop the thread. False if it still waits for the database after the timeout."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # A failed beat is repeated well before the next one is due.
        backoff = Backoff(longest=max(0.1, self._settings.heartbeat_seconds / 2))
        while not self._stopping:
            self._wake.clear()
            pause = self._settings.heartbeat_seconds
            try:
                self._beat()
                self._look_at_the_clock()
                self.answered_at = steady_now()
                backoff.reset()
                self._answer_limit.reset()
                self._outage.remove_waiting(self._wake.set)
                self._outage.recover(_PURPOSE)
                self._worked_at = steady_now()  # after the outage that it may have ended
            # Without heartbeats the worker would lose every lease, so no error ends the thread.
            except Exception as error:
                self._drop()
                self._answer_limit.note(error)
                meter.current.database_error(error)
                pause = backoff.next_pause()
                self._outage.add_waiting(self._wake.set)  # woken when another session works again
                self._outage.fail(_PURPOSE, error, worked_at=self._worked_at)
                self._worked_at = None
            if not self._stopping:
                self._wait(pause)
        self._outage.remove_waiting(self._wake.set)
        self._outage.withdraw(_PURPOSE)
        self._drop()

    def _wait(self, seconds: float) -> None:
        self.due_at = due_at = steady_now() + seconds
        while (left := due_at - steady_now()) > 0:
            if self._wake.wait(min(left, _CLOCK_CHECK_SECONDS)):
                break
        self.due_at = None

    def _beat(self) -> None:
        conn = self._connection()
        sent_at, renewed = steady_now(), 0
        self._run_calls(conn)
        held = [lease for lease in self._held_leases if self._may_renew(lease)]
        leases = sorted(held, key=attrgetter("lease_seconds"))
        if not leases:
            self._act_on_answer(
                run(conn, protocol.heartbeat(self._settings.worker_id, [], lease_seconds=1))
            )
        for lease_seconds, group in itertools.groupby(leases, key=attrgetter("lease_seconds")):
            same = list(group)
            for start in range(0, len(same), _BATCH):
                renewed += self._renew(conn, same[start : start + _BATCH], lease_seconds)
        meter.current.heartbeat(
            sent_at,
            seconds=steady_now() - sent_at,
            renewed=renewed,
            next_in=self._settings.heartbeat_seconds,
        )

    def _run_calls(self, conn: Connection) -> None:
        while self._calls:
            call = self._calls.popleft()
            try:
                call(conn)
            except (FaultlineError, DriverError) as error:
                if conn.closed:
                    self._calls.appendleft(call)
                    raise
                message = " ".join(str(error).split())
                emit(Event.DEGRADED, reason=f"the heartbeat could not report: {message}")

    def _look_at_the_clock(self) -> None:
        clock = meter.current.clock
        if clock is not None and clock.is_due():
            sent_at = time.monotonic()
            clock.learn(run(self._connection(), database_time()), sent_at=sent_at)

    def _renew(self, conn: Connection, leases: list[Lease], lease_seconds: float) -> int:
        """Renew the leases; returns how many were renewed."""
        sent_at = steady_now()
        statement = protocol.heartbeat(
            self._settings.worker_id, [lease.claim for lease in leases], lease_seconds=lease_seconds
        )
        beat = run(conn, statement)
        renewed = 0
        for lease in leases:
            outcome = beat.renewals.get(lease.claim.id)
            if outcome is Renewal.RENEWED:
                lease.renew(sent_at=sent_at)
                renewed += 1
                if log.is_verbose:
                    emit(
                        Event.LEASE_RENEWED,
                        job_id=lease.claim.id,
                        token=lease.claim.fencing_token,
                        worker=self._settings.worker_id,
                    )
            elif outcome is Renewal.LOST and lease.claim in self._held_leases:
                lease.lose("taken_over")
        self._act_on_answer(beat)
        return renewed

    def _act_on_answer(self, beat: Beat) -> None:
        if beat.is_drain_requested and not self._is_drain_reported:
            self._is_drain_reported = True
            self._on_drain()
        if not beat.is_registered and not self._stopping:
            self._register_again()

    def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed:
            conn, session = open_session(
                self._url,
                application_name="faultline heartbeat",
                answer_seconds=self._answer_limit.seconds,
                needs_primary=True,
            )
            self._conn = conn
            self._worked_at = steady_now()
            if self._was_open:
                meter.current.reconnected()
            self._was_open = True
            self._is_pooled, self._holds_lock = session.is_pooled, False
        if not self._holds_lock and not self._is_pooled and self._lock_key is not None:
            self._hold_lock(self._conn, self._lock_key)
        return self._conn

    def _hold_lock(self, conn: Connection, lock_key: int) -> None:
        """Try to take the lock with every beat: without it leases are still renewed."""
        self._holds_lock = run(conn, workers.hold_worker_lock(lock_key))
        if not self._holds_lock and not self._reported_unheld_lock:
            emit(
                Event.DEGRADED,
                reason="another session holds this worker's advisory lock, or waits for it: if the"
                " worker's other session breaks, its jobs are requeued as if it were dead",
            )
        self._reported_unheld_lock = not self._holds_lock

    def _register_again(self) -> None:
        """Register again: the row was purged after a day without heartbeats."""
        statement = workers.register_worker(
            self._settings.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self.registered_queues,
            holds_locks=not self._is_pooled,
            lock_key=self._lock_key,
        )
        lock_key = run(self._connection(), statement)
        if lock_key != self._lock_key:
            self._lock_key, self._holds_lock = lock_key, True
        if self.declaration is not None:
            run(self._connection(), self.declaration)

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(DriverError):
                conn.close()
