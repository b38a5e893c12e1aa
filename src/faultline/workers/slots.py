"""Execution slots of one worker: waiting leases and running attempts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from faultline.metrics import meter
from faultline.steady import steady_now
from faultline.workers.background import BackgroundTasks, Wakeup, report_error
from faultline.workers.execution import Execution
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes

# A lease that was claimed ahead and has waited this long is released, so that idle workers can claim it.
_MAX_WAIT_SECONDS = 0.5


class Slots:
    """Runs at most `limit` attempts at once and buffers leases claimed ahead."""

    def __init__(
        self,
        limit: int,
        execution: Execution,
        outcomes: Outcomes,
        background: BackgroundTasks,
        wakeup: Wakeup,
        *,
        may_claim_ahead: Callable[[str], bool],
    ) -> None:
        self._limit = limit
        self._execution = execution
        self._outcomes = outcomes
        self._background = background
        self._wakeup = wakeup
        self._may_claim_ahead = may_claim_ahead
        self._buffered: deque[Lease] = deque()
        self._running: set[asyncio.Task[None]] = set()
        # Attempts of queues with slots of their own. They say nothing about how many others end soon.
        self._never_ahead: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.started = 0  # attempts since the worker began
        self.ended = 0  # of those of queues that may be claimed ahead

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._buffered)

    @property
    def free(self) -> int:
        return self._limit - len(self._running)

    def add(self, leases: Sequence[Lease]) -> None:
        """Start attempts while slots are free; release the leases if the worker stops."""
        self._buffered.extend(leases)
        if self._is_closed:
            self._release_buffered()
        self._fill()

    def close(self) -> None:
        """Start nothing from now on, and release the buffered leases."""
        self._is_closed = True
        self._release_buffered()

    def release_overdue(self) -> None:
        """Release buffered leases that waited too long, for idle workers."""
        if self._buffered and steady_now() > self._buffered[0].taken_at + _MAX_WAIT_SECONDS:
            self._release_buffered()

    async def wait_idle(
        self, timeout_seconds: float, *, unless: asyncio.Event | None = None
    ) -> None:
        """Wait for attempts and background tasks, until the timeout or `unless` is set."""
        interruption = asyncio.create_task((unless or asyncio.Event()).wait())
        deadline = steady_now() + timeout_seconds
        while (left := deadline - steady_now()) > 0 and not interruption.done():
            pending = self._running | self._background.pending
            if not pending:
                break
            meter.current.flush(steady_now(), running=self.running)
            await asyncio.wait(
                {*pending, interruption}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
        interruption.cancel()

    def cancel_all(self) -> None:
        for task in (*self._running, *self._background.pending):
            task.cancel()

    def _release_buffered(self) -> None:
        while self._buffered:
            self._background.spawn(self._outcomes.release(self._buffered.popleft()))

    def _fill(self) -> None:
        buffered, running, limit = self._buffered, self._running, self._limit
        while buffered and len(running) < limit:
            self.started += 1
            lease = buffered.popleft()
            task = asyncio.create_task(self._execution.run(lease))
            running.add(task)
            if not self._may_claim_ahead(lease.claim.queue):
                self._never_ahead.add(task)
            task.add_done_callback(self._attempt_ended)

    def _attempt_ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task in self._never_ahead:
            self._never_ahead.remove(task)
        else:
            self.ended += 1
        if self._buffered:
            self._fill()
        self._wakeup.set()
        report_error(task)
