"""One run of a batch handler, for all jobs of its batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from faultline.batch import Batch
from faultline.batch_transactions import BatchTransactions
from faultline.task import Task
from faultline.workers.attempt import AbortCause, Attempt
from faultline.workers.leases import Lease


class BatchAttempt(Attempt):
    """Ends when any of its leases is lost. In events the first job stands for all."""

    __slots__ = ("_leases", "batch", "batch_transactions", "reported")

    def __init__(
        self,
        task: Task[Any, Any],
        batch: Batch[Any],
        leases: Sequence[Lease],
        transactions: BatchTransactions,
        *,
        loop: asyncio.AbstractEventLoop,
        on_abandoned: Callable[[Attempt, AbortCause], None],
    ) -> None:
        super().__init__(
            task,
            batch.jobs[0],
            leases[0],
            transactions,
            arguments={},
            loop=loop,
            on_abandoned=on_abandoned,
        )
        self.batch = batch
        self.batch_transactions = transactions
        self.reported: set[str] = set()  # ids of jobs whose progress the handler has reported
        self._leases = tuple(leases)
        self.timeout_seconds = _shortest_timeout(leases, task.settings.timeout_seconds)

    @property
    def leases(self) -> tuple[Lease, ...]:
        return self._leases

    @property
    def _subject(self) -> Any:
        return self.batch

    def _runs_in_child(self) -> bool:
        return False


def _shortest_timeout(leases: Sequence[Lease], of_task: float | None) -> float | None:
    own = [lease.claim.override("timeout") or of_task for lease in leases]
    return min((seconds for seconds in own if seconds is not None), default=None)
