"""Execution slots of one worker: waiting leases and running attempts."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any

from faultline.logs import set_current_job
from faultline.metrics import meter
from faultline.steady import steady_now
from faultline.task import Task
from faultline.workers.background import BackgroundTasks, Wakeup, report_error
from faultline.workers.batch_execution import BatchExecution
from faultline.workers.batching import BatchCollector, ReadyBatch
from faultline.workers.execution import Execution
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes
from faultline.workers.queue_groups import QueueGroups

# A lease that was claimed ahead and has waited this long is released, so that idle workers can claim it.
_MAX_WAIT_SECONDS = 0.5
# How long one task runs jobs that do not suspend, before the event loop turns.
_RUN_SECONDS = 0.002
# After so many jobs, every task counts as one whose jobs do not suspend, until one of them does.
_FORGET_AFTER = 1_000


class Slots:
    """Runs at most `limit` attempts at once and buffers leases claimed ahead.

    A batch takes one slot. Its leases wait in `BatchCollector` until it is full or due.

    An asyncio task costs as much as the rest of a short job. So the task of a job whose handler has not
    suspended runs the next job too, unless that handler has left something behind in its task. Only a task
    that suspended belongs to one job.
    """

    def __init__(
        self,
        limit: int,
        execution: Execution,
        batch_execution: BatchExecution,
        outcomes: Outcomes,
        background: BackgroundTasks,
        wakeup: Wakeup,
        *,
        groups: QueueGroups,
        tasks: Mapping[str, Task[Any, Any]],
    ) -> None:
        self._limit = limit
        self._execution = execution
        self._batch_execution = batch_execution
        self._outcomes = outcomes
        self._background = background
        self._wakeup = wakeup
        self._groups = groups
        self._buffered: deque[Lease] = deque()
        self._batches = BatchCollector(tasks, self._fill)
        self._ready: deque[ReadyBatch] = deque()
        self._running: set[asyncio.Task[None]] = set()
        # Attempts of queues with slots of their own. They say nothing about how many others end soon.
        self._never_ahead: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # found once, not for each job
        self._suspending: set[str] = (
            set()
        )  # names: each of their jobs runs in an asyncio task of its own
        self._forget_at = _FORGET_AFTER  # empty that set when so many attempts have ended
        # The asyncio task that runs several jobs now, and the name of the job's task that it began last.
        self._leading: asyncio.Task[None] | None = None
        self._newest = ""
        self.started = 0  # attempts since the worker began
        self.ended = 0  # of those of queues that may be claimed ahead

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def buffered(self) -> int:
        """Jobs that wait for a slot."""
        return len(self._buffered) + sum(len(batch.leases) for batch in self._ready)

    @property
    def waiting(self) -> int:
        """Jobs that wait for a slot, or for the rest of their batch."""
        return self.buffered + self._batches.waiting

    @property
    def free(self) -> int:
        return self._limit - len(self._running)

    def room(self, jobs_per_slot: int) -> int:
        """How many jobs the free slots take, with those that are being collected."""
        return self._batches.room(self.free, jobs_per_slot)

    def jobs_per_slot(self, leases: Sequence[Lease]) -> int:
        """How many jobs like these a slot takes; 0 if there are none."""
        return self._batches.smallest_size(leases)

    def add(self, leases: Sequence[Lease]) -> None:
        """Start attempts while slots are free; release the leases if the worker stops."""
        if self._batches.is_used:
            for lease in leases:
                if not self._batches.collects(lease):
                    self._buffered.append(lease)
                elif (batch := self._batches.add(lease)) is not None:
                    self._ready.append(batch)
        else:
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
        limit = steady_now() - _MAX_WAIT_SECONDS
        if self._buffered and self._buffered[0].taken_at < limit:
            self._release(self._taken_from_buffer())
        if self._ready and self._ready[0].ready_at < limit:
            self._release(self._taken_from_ready())
        if self._batches.is_used:
            self._release(self._batches.take_overdue(_MAX_WAIT_SECONDS))

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
        self._release(
            [*self._taken_from_buffer(), *self._taken_from_ready(), *self._batches.take_all()]
        )

    def _release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._background.spawn(self._outcomes.release(lease))

    def _taken_from_buffer(self) -> list[Lease]:
        leases = list(self._buffered)
        self._buffered.clear()
        return leases

    def _taken_from_ready(self) -> list[Lease]:
        leases = [lease for batch in self._ready for lease in batch.leases]
        self._ready.clear()
        return leases

    def _fill(self) -> None:
        if self._batches.is_used:
            self._fill_with_batches()
            return
        buffered, running, limit = self._buffered, self._running, self._limit
        while buffered and len(running) < limit:
            lease = buffered.popleft()
            task = self._start_job(lease)
            if not self._has_own_task(lease):  # the jobs behind it run in the same task
                task.get_loop().call_soon(self._look_after, task)
                break

    def _fill_with_batches(self) -> None:
        """Start jobs and batches, in the order in which they became ready."""
        while self.free > 0:
            batch = self._next_batch()
            job = self._buffered[0] if self._buffered else None
            if job is not None and (batch is None or job.taken_at <= batch.ready_at):
                self._start_job(self._buffered.popleft())
            elif batch is not None:
                self._ready.remove(batch)
                self._start_batch(batch)
            else:
                break

    def _next_batch(self) -> ReadyBatch | None:
        may_start = self._groups.may_start_batch
        for batch in self._ready:
            if may_start(batch.queue):
                return batch
        due = self._batches.take_due(may_start)
        if due is not None:
            self._ready.append(due)
        return due

    def _start_job(self, lease: Lease) -> asyncio.Task[None]:
        self.started += 1
        loop = self._loop or asyncio.get_running_loop()
        self._loop = loop
        if self._has_own_task(lease):
            task = loop.create_task(self._execution.run(lease))
            if self._groups.is_divided and not self._groups.may_claim_ahead(lease.claim.queue):
                self._never_ahead.add(task)
        else:
            task = loop.create_task(self._run_several(lease))
        self._running.add(task)
        task.add_done_callback(self._attempt_ended)
        return task

    def _has_own_task(self, lease: Lease) -> bool:
        return (
            lease.claim.task in self._suspending or self._groups.is_divided or self._batches.is_used
        )

    async def _run_several(self, lease: Lease) -> None:
        """Run a job, and those behind it in the buffer until one suspends."""
        set_current_job(None)
        clean, until = copy_context(), time.monotonic() + _RUN_SECONDS
        self._leading = task = asyncio.current_task(self._loop)
        while True:
            self._newest = lease.claim.task
            await self._execution.run(lease)
            set_current_job(None)
            if (
                not self._buffered
                or self._buffered[0].claim.task in self._suspending
                or self._leading is not task
                or lease.was_cancelled
                or time.monotonic() > until
                or not _is_same(copy_context(), clean)
            ):
                return
            lease = self._buffered.popleft()
            self.started += 1
            self.ended += 1

    def _look_after(self, task: asyncio.Task[None]) -> None:
        """Called when the event loop has turned: the task has ended, or its job suspended."""
        if not task.done():
            self._suspending.add(self._newest)
            self._leading = None
            self._fill()

    def _start_batch(self, batch: ReadyBatch) -> None:
        queue, jobs = batch.queue, len(batch.leases)
        self._groups.batch_started(queue, jobs)
        self.started += jobs
        task = asyncio.create_task(self._batch_execution.run(batch.leases))
        self._running.add(task)
        if not self._groups.may_claim_ahead(queue):
            self._never_ahead.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._groups.batch_ended(queue, jobs)
            self._attempt_ended(task, jobs)

        task.add_done_callback(ended)

    def _attempt_ended(self, task: asyncio.Task[None], jobs: int = 1) -> None:
        self._running.discard(task)
        if self._never_ahead and task in self._never_ahead:
            self._never_ahead.remove(task)
        else:
            self.ended += jobs
        if self._suspending and self.ended >= self._forget_at:
            self._suspending.clear()
            self._forget_at = self.ended + _FORGET_AFTER
        if self._buffered or self._batches.is_used:
            self._fill()
        self._wakeup.set()
        report_error(task)


def _is_same(context: Context, other: Context) -> bool:
    """Whether a handler has left its context variables as they were."""
    try:
        return context == other
    except Exception:  # the values are the user's, and may not be comparable
        return False
