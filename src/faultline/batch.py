"""What a batch handler receives: jobs of one task, with one transaction for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, NoReturn, TypeVar, overload

from faultline.batch_transactions import BatchTransactions
from faultline.errors import InvalidInput
from faultline.fenced_block import FencedBlock, PrepareTransaction
from faultline.job import Job
from faultline.model import Claim
from faultline.postgres.driver import IsolationLevel
from faultline.postgres.sessions import AsyncPool, Pool
from faultline.retry_control import Snooze
from faultline.user_block import UserBlock
from faultline.user_connections import AnyConnection, AsyncpgPool, DjangoDatabase

A = TypeVar("A")
C = TypeVar("C", bound=AnyConnection)


class BatchJob(Job, Generic[A]):
    """One job of a batch. Its writes are part of the batch's transaction."""

    def __init__(self, claim: Claim, arguments: A, **parts: Any) -> None:
        super().__init__(claim, **parts)
        self.args = arguments
        """The arguments of the enqueue: a dict, or an instance of the task's `arguments`."""
        self.failure: Exception | None = None
        """The error that `batch.fail` was called with, in this run of the handler."""

    def __repr__(self) -> str:
        return f"<BatchJob {self.id} of {self.task}, attempt {self.attempt}, token {self.token}>"

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidInput(
            "a job of a batch is committed with its batch",
            hint="use batch.transaction() or batch.fenced(); batch.fail(job, error) for one job",
        )

    transaction = atomic = fenced = session = commit = expect_commit = assert_fence = _refuse


class Batch(Generic[A]):
    """Jobs of one task and queue that one call of a handler does together.

    `for job in batch` goes through the jobs that have not failed.
    """

    def __init__(
        self,
        jobs: Sequence[BatchJob[A]],
        transactions: BatchTransactions,
        pool: Callable[[], Pool],
        async_pool: AsyncPool | None,
        prepare: PrepareTransaction | None = None,
    ) -> None:
        self._jobs = {job._claim.id: job for job in jobs}
        self._transactions = transactions
        self._pool = pool
        self._async_pool = async_pool
        self._prepare = prepare
        self.result: None = None  # each job has its own

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} jobs of {self.task}>"

    @property
    def jobs(self) -> tuple[BatchJob[A], ...]:
        """The jobs that have not failed, in the order in which they were claimed."""
        return tuple(self._jobs[claim.id] for claim in self._transactions.going_on)

    def __iter__(self) -> Iterator[BatchJob[A]]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self._transactions.going_on)

    @property
    def task(self) -> str:
        return self._transactions.claim.task

    @property
    def queue(self) -> str:
        return self._transactions.claim.queue

    @property
    def lease_remaining(self) -> float:
        """Seconds this worker may still rely on all of its leases; 0 when one is lost."""
        return max(0.0, self._transactions.lease.remaining_seconds())

    @property
    def lease_lost(self) -> bool:
        """True once the worker knows that a lease of the batch is lost."""
        return self._transactions.lease.is_lost

    def fail(self, job: BatchJob[A], error: Exception) -> None:
        """Fail one job; its retry policy decides when it runs again.

        The other jobs go on. Before `transaction()` the job is left out of it. Inside of the block, nothing
        is committed at its end, because writes for the failed job may be among the others, and the handler
        runs again without the failed jobs. `error` may be a Snooze, a Retry or a Reject.
        """
        if self._jobs.get(job._claim.id) is not job:
            raise InvalidInput(f"job {job.id} is not a job of this batch")
        if not isinstance(error, Exception):
            raise InvalidInput(f"batch.fail needs an exception, not {error!r}")
        self._transactions.fail(job._claim, error)
        job.failure = error

    def snooze(
        self,
        job: BatchJob[A],
        seconds: float | timedelta | None = None,
        *,
        until: datetime | None = None,
        reason: str | None = None,
    ) -> None:
        """Run one job again later, without using an attempt; otherwise as `fail`."""
        self.fail(job, Snooze(seconds, until=until, reason=reason))

    # ── writing under the fence ──────────────────────────────────────────────────────────────────

    @overload
    def transaction(self, *, isolation: IsolationLevel | None = None) -> FencedBlock: ...
    @overload
    def transaction(self, conn: AsyncpgPool) -> UserBlock[Any]: ...
    @overload
    def transaction(self, conn: C) -> UserBlock[C]: ...
    def transaction(
        self, conn: Any = None, *, isolation: IsolationLevel | None = None
    ) -> FencedBlock | UserBlock[Any]:
        """Your writes, a ledger entry per job and their success in one transaction.

        Use it with `with` or `async with`, as `job.transaction()`. If one lease of the batch is lost it
        raises StaleLease, commits nothing, and the handler runs again without that job.
        """
        return self._block(conn, completes=True, isolation=isolation)

    def atomic(self, using: str | None = None) -> UserBlock[DjangoDatabase]:
        """Django's `transaction.atomic()` for what completes the jobs of this batch.

        Use it with `with`, as `job.atomic()`. `using` is an alias of DATABASES.
        """
        from faultline.adapters.django.connection import connection_of_attempt

        return UserBlock(self, self._transactions, connection_of_attempt(using), completes=True)

    @overload
    def fenced(self) -> FencedBlock: ...
    @overload
    def fenced(self, conn: AsyncpgPool) -> UserBlock[Any]: ...
    @overload
    def fenced(self, conn: C) -> UserBlock[C]: ...
    def fenced(self, conn: Any = None) -> FencedBlock | UserBlock[Any]:
        """Fenced writes in the middle of the batch: they commit now, and the jobs go on.

        A handler that runs again does them again.
        """
        return self._block(conn, completes=False)

    def _block(
        self, conn: object | None, *, completes: bool, isolation: IsolationLevel | None = None
    ) -> FencedBlock | UserBlock[Any]:
        if conn is not None:
            if isolation is not None:
                raise InvalidInput(
                    "isolation is for connections of the worker", hint="set it on your connection"
                )
            return UserBlock(self, self._transactions, conn, completes=completes)
        return FencedBlock(
            self,
            self._transactions,
            pool=self._pool,
            async_pool=self._async_pool,
            prepare=self._prepare,
            completes_job=completes,
            isolation=isolation,
        )
