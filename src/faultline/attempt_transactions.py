"""The transactions of one attempt: how far they got, and their connections.

The job's methods and blocks record here what PostgreSQL answered. The worker reads it after the handler
has ended, and severs the connections when the attempt must end early.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from faultline.errors import FenceNotHeld, InvalidInput, NotCommitted, StaleLease
from faultline.model import Claim, CommitPhase
from faultline.postgres.answer_limit import answer_seconds_for, answered_within
from faultline.postgres.errors import driver_errors
from faultline.postgres.sessions import (
    AsyncConnection,
    Connection,
    ServerAddress,
    server_address_of,
    sever,
)
from faultline.results import encode_result
from faultline.statements import protocol, transactions
from faultline.statements.statement import Statement
from faultline.user_connections import UserConnection

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace

AttemptConnection = Connection | AsyncConnection | UserConnection


class HeldLease(Protocol):
    """The worker's view of a lease: how long the attempt may still rely on it."""

    @property
    def lease_seconds(self) -> float: ...
    @property
    def is_lost(self) -> bool: ...
    def remaining_seconds(self) -> float: ...


class AttemptTransactions:
    """Written by the handler's thread; read, and severed, by the worker's threads."""

    def __init__(self, claim: Claim, lease: HeldLease, trace: AttemptTrace | None = None) -> None:
        self.claim = claim
        self.lease = lease
        self._trace = trace
        self._phase = CommitPhase.UNCOMMITTED
        # A handler that swallows one of these two errors has still not succeeded.
        self.refusal: StaleLease | None = None
        self.not_committed: NotCommitted | None = None
        # The server froze or was demoted under the attempt: the job is released, no attempt is charged.
        self._server_failed = False
        self.stored_result: str | None = None  # JSON text, sent with the ledger entry
        self.discarded: str | None = None  # describes a value that was not stored as the result
        self._blocks: list[bool] = []  # the open blocks; True for one that completes the job
        self._connections: set[AttemptConnection] = set()
        self._is_severed = False  # the attempt must end: it gets no connection any more

    @property
    def is_unused(self) -> bool:
        """Whether nothing was written, refused or discarded in this attempt."""
        return (
            self.phase is CommitPhase.UNCOMMITTED
            and self.refusal is None
            and self.not_committed is None
            and self.discarded is None
        )

    @property
    def phase(self) -> CommitPhase:
        return self._phase

    @phase.setter
    def phase(self, phase: CommitPhase) -> None:
        self._phase = phase

    @property
    def server_failed(self) -> bool:
        return self._server_failed

    @server_failed.setter
    def server_failed(self, server_failed: bool) -> None:
        self._server_failed = server_failed

    @property
    def limit_seconds(self) -> float:
        """How long one of Faultline's own statements may take in a block."""
        return answer_seconds_for(self.lease.lease_seconds)

    def open_statement(self, *, completes: bool) -> Statement[None]:
        idle_seconds = self.lease.lease_seconds
        return transactions.open_transaction(
            self.claim, completes=completes, idle_seconds=idle_seconds
        )

    def assert_statement(self) -> Statement[None]:
        """For a step in a transaction of the user's that has begun."""
        return protocol.assert_fence(self.claim, idle_seconds=self.lease.lease_seconds)

    def require_complete(self) -> None:
        """Called when a block's handler has ended, before the entries are sent."""

    def close_statement(self, result: Any, *, completes: bool) -> Statement[None]:
        """The last statement of a block: the ledger entry, or the end of a step."""
        if not completes:
            return transactions.close_transaction(self.claim)
        self.stored_result = encode_result(result)
        self.note_fenced()
        return transactions.close_transaction(self.claim, result=self.stored_result)

    def note_committed(self) -> None:
        self.phase = CommitPhase.COMMITTED

    def forget(self) -> None:
        """Reset before the handler runs again within the same attempt."""
        self.phase = CommitPhase.UNCOMMITTED
        self.not_committed = None
        self.stored_result = None

    def note_fenced(self) -> None:
        """From here on the job may succeed; only the database knows."""
        self.phase = CommitPhase.FENCED

    def note_refused(self) -> None:
        """The server has refused a whole transaction that was sent in one message."""
        if self.phase is CommitPhase.FENCED:
            self.phase = CommitPhase.UNCOMMITTED
            self.stored_result = None

    def require_commit(self, what: str) -> None:
        """From here on only a transaction can complete the job, not a plain return."""
        self.not_committed = NotCommitted(
            f"the handler called {what} and returned, but its transaction was not committed",
            hint="let errors pass, or catch them inside: with tx.transaction(): …",
        )

    # ── around statements ────────────────────────────────────────────────────────────────────────

    def committing(
        self, conn: AttemptConnection, how: str
    ) -> contextlib.AbstractContextManager[None]:
        """Around the statement that commits: sever on a refusal, and trace it."""
        guard = self.sever_on_stale(conn, on_any_error=how == "entry")
        return guard if self._trace is None else self._trace.committing(guard, how)

    @contextlib.contextmanager
    def sever_on_stale(
        self, conn: AttemptConnection, *, on_any_error: bool = False
    ) -> Iterator[None]:
        """Record a refusal and close the connection.

        A handler that swallows the error could otherwise roll back to a savepoint and commit the rest.
        """
        try:
            yield
        except StaleLease as error:
            self.refusal = error
            _sever(conn)
            raise
        except NotCommitted as error:
            self.not_committed = error
            self.phase = CommitPhase.UNCOMMITTED
            _sever(conn)
            raise
        # Raised outside of savepoints only, so the transaction can only be rolled back.
        except FenceNotHeld:
            raise
        except Exception:  # of Faultline, of the driver or of the user's library
            if on_any_error:
                _sever(conn)
            raise

    @contextlib.contextmanager
    def bounded(self, conn: Connection | AsyncConnection) -> Iterator[None]:
        """Around statements that open or close a block: bound and translate errors."""
        with driver_errors(keep_conflicts=True), answered_within(conn, self.limit_seconds):
            yield

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def block(self, *, completes: bool, what: str = "job.transaction()") -> Iterator[None]:
        """Refuse a block that completes the job beside any other; steps may overlap.

        No lock guards the list, because an interrupt could leave it locked. Of two blocks that begin at
        once, each sees the other.
        """
        if completes:
            self.require_commit(what)
        self._blocks.append(completes)
        try:
            if len(self._blocks) > 1 and any(self._blocks):
                raise _overlapping_block(what if completes else "job.fenced()")
            yield
        finally:
            self._blocks.remove(completes)

    def require_no_block(self, what: str) -> None:
        if self._blocks:
            raise _overlapping_block(what)

    # ── connections ──────────────────────────────────────────────────────────────────────────────

    @property
    def has_connections(self) -> bool:
        return bool(self._connections)

    def track(self, conn: AttemptConnection) -> None:
        """Remember a connection that the attempt uses, so that the worker can sever it."""
        self._connections.add(conn)
        if self._is_severed:
            _sever(conn)

    def untrack(self, conn: AttemptConnection) -> None:
        self._connections.discard(conn)

    def sever_from(self, server: ServerAddress) -> None:
        """Close the attempt's connections to a server that the worker has left."""
        for conn in tuple(self._connections):
            if isinstance(conn, UserConnection):
                continue
            if server_address_of(conn) == server:
                _sever(conn)

    def sever_all(self) -> None:
        """Close the attempt's connections, so that a thread that waits in one returns."""
        self._is_severed = True
        for conn in tuple(self._connections):
            _sever(conn)


def _sever(conn: AttemptConnection) -> None:
    if isinstance(conn, UserConnection):
        conn.sever()
    else:
        sever(conn)


def _overlapping_block(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} while another block of this job is open: it would wait for itself",
        hint="leave job.transaction() or job.fenced() first; only steps, job.fenced(), may overlap",
    )
