"""Collects jobs of batch handlers until a batch is full or has waited enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from faultline.batch_settings import BatchSettings
from faultline.batch_task import BatchTask
from faultline.steady import steady_now
from faultline.task import Task
from faultline.workers.leases import Lease


class ReadyBatch(NamedTuple):
    """Leases that one call of a batch handler takes."""

    leases: tuple[Lease, ...]
    ready_at: float  # by the steady clock

    @property
    def queue(self) -> str:
        return self.leases[0].claim.queue


class _Collecting:
    """A batch that is not full yet."""

    __slots__ = ("due_at", "leases", "max_size", "timer")

    def __init__(self, max_size: int, due_at: float, timer: asyncio.TimerHandle) -> None:
        self.leases: list[Lease] = []
        self.max_size = max_size
        self.due_at = due_at
        self.timer = timer


Key = tuple[str, str, int]  # task, queue, largest size


class BatchCollector:
    """Batches of a worker before they start; calls `on_due` when one waited enough.

    Jobs of one batch have one task and one queue. A batch that is due and finds no free slot goes on
    collecting until one is free.
    """

    def __init__(self, tasks: Mapping[str, Task[Any, Any]], on_due: Callable[[], None]) -> None:
        self._settings = {
            name: task.batch for name, task in tasks.items() if isinstance(task, BatchTask)
        }
        self._on_due = on_due
        self._collecting: dict[Key, _Collecting] = {}

    @property
    def is_used(self) -> bool:
        return bool(self._settings)

    @property
    def waiting(self) -> int:
        return sum(len(batch.leases) for batch in self._collecting.values())

    def collects(self, lease: Lease) -> bool:
        return lease.claim.task in self._settings

    def smallest_size(self, leases: Sequence[Lease]) -> int:
        """How many of these jobs fit into a batch; 1 if one needs a slot alone."""
        if not self._settings:
            return min(1, len(leases))
        sizes = [
            settings.size_for(lease.claim) if settings is not None else 1
            for lease in leases
            for settings in [self._settings.get(lease.claim.task)]
        ]
        return min(sizes, default=0)

    def add(self, lease: Lease) -> ReadyBatch | None:
        """Put a lease into its batch; returns the batch if it is full now."""
        claim = lease.claim
        settings = self._settings[claim.task]
        size = settings.size_for(claim)
        if size == 1:
            return ReadyBatch((lease,), steady_now())
        key = (claim.task, claim.queue, size)
        batch = self._collecting.get(key)
        if batch is None:
            batch = self._collecting[key] = self._begin(size, settings)
        batch.leases.append(lease)
        return self._taken(key) if len(batch.leases) == size else None

    def take_due(self, may_start: Callable[[str], bool]) -> ReadyBatch | None:
        """Take the batch that is due for longest, of the queues that have a slot."""
        now = steady_now()
        due = [
            (batch.due_at, key)
            for key, batch in self._collecting.items()
            if batch.due_at <= now and may_start(key[1])
        ]
        return self._taken(min(due)[1]) if due else None

    def take_overdue(self, max_wait_seconds: float) -> list[Lease]:
        """Take the leases of batches that are due for longer than this."""
        limit = steady_now() - max_wait_seconds
        overdue = [key for key, batch in self._collecting.items() if batch.due_at < limit]
        return [lease for key in overdue for lease in self._taken(key).leases]

    def take_all(self) -> list[Lease]:
        return [lease for key in tuple(self._collecting) for lease in self._taken(key).leases]

    def room(self, slots: int, jobs_per_slot: int) -> int:
        """How many jobs these free slots take, with those that are being collected.

        Each batch that collects will take one of the slots.
        """
        sizes = sorted((batch.max_size for batch in self._collecting.values()), reverse=True)
        return sum(sizes[:slots]) + max(0, slots - len(sizes)) * jobs_per_slot

    def _begin(self, size: int, settings: BatchSettings) -> _Collecting:
        wait = settings.max_wait_seconds
        timer = asyncio.get_running_loop().call_later(wait, self._on_due)
        return _Collecting(size, steady_now() + wait, timer)

    def _taken(self, key: Key) -> ReadyBatch:
        batch = self._collecting.pop(key)
        batch.timer.cancel()
        return ReadyBatch(tuple(batch.leases), steady_now())


def jobs_per_slot(tasks: Iterable[Task[Any, Any]]) -> int:
    """How many jobs a slot takes that serves these tasks; 1 if one takes no batches."""
    sizes = [task.batch.max_size if isinstance(task, BatchTask) else 1 for task in tasks]
    return min(sizes, default=1)
