"""The transactions of a batch: one for all jobs, with a ledger entry for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from faultline.attempt_transactions import AttemptTransactions, HeldLease
from faultline.errors import InvalidInput, NotCommitted
from faultline.model import Claim, CommitPhase
from faultline.results import encode_result
from faultline.statements import transactions
from faultline.statements.statement import Statement

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace


class JobsFailed(NotCommitted):
    """Jobs failed inside of a batch's transaction, so nothing of it was committed."""


class SharedLease:
    """The leases of a batch as one: it holds while each of them holds."""

    def __init__(self, leases: Sequence[HeldLease]) -> None:
        self._leases = leases

    @property
    def lease_seconds(self) -> float:
        return min(lease.lease_seconds for lease in self._leases)

    @property
    def is_lost(self) -> bool:
        return any(lease.is_lost for lease in self._leases)

    def remaining_seconds(self) -> float:
        return min(lease.remaining_seconds() for lease in self._leases)


class BatchTransactions(AttemptTransactions):
    """Fences a transaction for all jobs of a batch that have not failed.

    `results` returns the results of these jobs, in the order of the claims that it gets.
    """

    def __init__(
        self,
        claims: Sequence[Claim],
        leases: Sequence[HeldLease],
        results: Callable[[Sequence[Claim]], Sequence[Any]],
        trace: AttemptTrace | None = None,
    ) -> None:
        super().__init__(claims[0], SharedLease(leases), trace)
        self._results = results
        self.claims = tuple(claims)
        self.failed: dict[str, Exception] = {}  # by the jobs' ids
        self.fenced: tuple[Claim, ...] = ()  # of the block that completes them
        self._opened: tuple[Claim, ...] = ()
        self.stored_results: dict[str, str | None] = {}
        # Jobs failed in a block: the handler runs again without them.
        self.must_run_again = False

    @property
    def going_on(self) -> tuple[Claim, ...]:
        """The jobs that have not failed."""
        return tuple(claim for claim in self.claims if claim.id not in self.failed)

    def fail(self, claim: Claim, error: Exception) -> None:
        if self.phase is not CommitPhase.UNCOMMITTED and claim in self.fenced:
            raise InvalidInput(
                f"job {claim.id} has been committed and cannot fail any more",
                hint="call batch.fail before the end of batch.transaction()",
            )
        self.failed[claim.id] = error
        if self._blocks:
            self.must_run_again = True

    def open_statement(self, *, completes: bool) -> Statement[None]:
        self._opened = self.going_on
        if not self._opened:
            raise NotCommitted("every job of this batch has failed, so there is nothing to commit")
        return transactions.open_batch(
            self._opened, completes=completes, idle_seconds=self.lease.lease_seconds
        )

    def assert_statement(self) -> Statement[None]:
        raise InvalidInput(
            "batch.fenced(conn) in a transaction that has begun",
            hint="end that transaction first: the block begins one for all jobs of the batch",
        )

    def require_complete(self) -> None:
        if self.must_run_again:
            raise JobsFailed(
                f"{len(self.claims) - len(self.going_on)} of {len(self.claims)} jobs failed inside of"
                " the block: nothing was committed, and the handler runs again without them",
            )

    def close_statement(self, result: Any, *, completes: bool) -> Statement[None]:
        if not completes:
            return transactions.close_batch(self._opened)
        encoded = [encode_result(value) for value in self._results(self._opened)]
        self.stored_results = {
            claim.id: text for claim, text in zip(self._opened, encoded, strict=True)
        }
        self.fenced = self._opened
        self.note_fenced()
        return transactions.close_batch(self._opened, results=encoded)

    def forget(self) -> None:
        super().forget()
        self.fenced = ()
        self.failed.clear()
        self.must_run_again = False
