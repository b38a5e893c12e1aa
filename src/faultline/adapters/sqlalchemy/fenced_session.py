"""A SQLAlchemy session under the fence: its commit is the job's commit."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from faultline import handler_interrupts
from faultline.adapters.sqlalchemy.connections import AlchemyConnection
from faultline.adapters.sqlalchemy.session_makers import ASYNC, SYNC, session_maker
from faultline.attempt_transactions import AttemptTransactions
from faultline.errors import InvalidInput
from faultline.user_block import UserTransaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession  # needs greenlet

    from faultline.job import Job


class FencedSession:
    """What `job.session()` returns: use it with `with` or `async with`."""

    def __init__(
        self,
        job: Job,
        attempt: AttemptTransactions,
        makers: dict[str, Any],
        given: Callable[[], Any] | None,
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._makers = makers
        self._given = given
        self._open: Any = None

    def __enter__(self) -> Session:
        maker = session_maker(self._makers, self._given, SYNC)
        self._open = _session(self._job, self._attempt, maker())
        session: Session = self._open.__enter__()
        return session

    def __exit__(self, *exc: Any) -> bool | None:
        swallowed: bool | None = self._open.__exit__(*exc)
        return swallowed

    async def __aenter__(self) -> AsyncSession:
        maker = session_maker(self._makers, self._given, ASYNC)
        self._open = _session_async(self._job, self._attempt, maker())
        session: AsyncSession = await self._open.__aenter__()
        return session

    async def __aexit__(self, *exc: Any) -> bool | None:
        swallowed: bool | None = await self._open.__aexit__(*exc)
        return swallowed


class CommitEvents:
    """Inserts the ledger entry before the session's COMMIT, and notes the COMMIT.

    After it the session may still read, for example the attributes of expired objects: its next transaction
    is read-only.
    """

    def __init__(self, session: Session, enter: Callable[[], None], block: UserTransaction) -> None:
        self._session = session
        self._enter = enter
        self._block = block
        self.has_committed = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        listeners: list[tuple[str, Callable[..., Any]]] = [
            ("before_commit", self._before_commit),
            ("after_commit", self._after_commit),
            ("after_begin", self._after_begin),
        ]
        for name, listener in listeners:
            event.listen(self._session, name, listener)
        try:
            yield
        finally:
            for name, listener in listeners:
                event.remove(self._session, name, listener)

    def _before_commit(self, session: Session) -> None:
        if not session.in_nested_transaction() and not self.has_committed:
            self._enter()

    def _after_commit(self, session: Session) -> None:
        if not session.in_nested_transaction() and not self.has_committed:
            self.has_committed = True
            self._block.committed()

    def _after_begin(
        self, session: Session, transaction: SessionTransaction, conn: sa.Connection
    ) -> None:
        if self.has_committed:
            conn.exec_driver_sql("SET TRANSACTION READ ONLY")

    def require_nothing_new(self) -> None:
        """Refuse objects that were changed after the commit: they would be lost."""
        session = self._session
        if session.new or session.deleted or any(map(session.is_modified, session.dirty)):
            raise InvalidInput(
                "objects were changed after session.commit(), which completed the job",
                hint="change them before, or let the block commit at its end",
            )


@contextlib.contextmanager
def _session(job: Job, attempt: AttemptTransactions, session: Session) -> Iterator[Session]:
    block = UserTransaction(job, attempt, completes=True)
    with handler_interrupts.held() as hold, contextlib.closing(session):
        conn = AlchemyConnection(session)
        events = CommitEvents(session, lambda: _enter(attempt, conn, block), block)
        attempt.track(conn)
        try:
            with block.noting_refusals(), attempt.block(completes=True), events.listening():
                session.begin()
                with attempt.sever_on_stale(conn):
                    conn.run(block.first(is_outermost=True))
                with hold.released():
                    yield session
                if events.has_committed:
                    events.require_nothing_new()
                else:
                    session.commit()
        finally:
            attempt.untrack(conn)


def _enter(attempt: AttemptTransactions, conn: AlchemyConnection, block: UserTransaction) -> None:
    conn.flush()
    with attempt.committing(conn, block.how):
        conn.run(block.last())


@contextlib.asynccontextmanager
async def _session_async(
    job: Job, attempt: AttemptTransactions, session: AsyncSession
) -> AsyncIterator[AsyncSession]:
    from faultline.adapters.sqlalchemy.async_connections import AlchemyAsyncConnection

    block = UserTransaction(job, attempt, completes=True)
    async with session:
        conn = AlchemyAsyncConnection(session)
        sync = AlchemyConnection(session.sync_session)  # the events are called inside of its commit
        events = CommitEvents(session.sync_session, lambda: _enter(attempt, sync, block), block)
        attempt.track(conn)
        try:
            with block.noting_refusals(), attempt.block(completes=True), events.listening():
                await session.begin()
                with attempt.sever_on_stale(conn):
                    await conn.run(block.first(is_outermost=True))
                yield session
                if events.has_committed:
                    events.require_nothing_new()
                else:
                    await session.commit()
        finally:
            attempt.untrack(conn)
