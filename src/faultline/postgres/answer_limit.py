"""Limits how long PostgreSQL may take to answer, and closes the connection then.

The kernel of a host whose PostgreSQL is frozen still acknowledges data, so keep-alives and
tcp_user_timeout never fire there, and a cancel request would wait for the same frozen server. Only a
limit on the client's side works: when it is over, the socket is closed.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg

from faultline.config import SHORTEST_ANSWER_SECONDS
from faultline.postgres.url import nearest_first, remember_reached

LONGEST_ANSWER_SECONDS = 300.0
# Half of the default lease, for sessions without a lease.
ANSWER_SECONDS = 7.5


class ReplyTimeout(psycopg.OperationalError):
    """The server did not answer in time, and the connection was closed.

    The outcome of the statement is unknown.
    """


def was_unanswered(error: BaseException) -> bool:
    """Whether `error`, or the error that it was raised from, is a ReplyTimeout."""
    return isinstance(error, ReplyTimeout) or isinstance(error.__cause__, ReplyTimeout)


def answer_seconds_for(lease_seconds: float) -> float:
    """The limit for a statement that serves this lease: half of the lease."""
    return max(lease_seconds / 2, SHORTEST_ANSWER_SECONDS)


class AnswerLimit:
    """The time limit of one session: doubled by each timeout, reset by an answer.

    A server that is alive but slow (for example because its synchronous standby is away) keeps the
    sessions that were closed on the client's side. The longer the limit, the fewer of them collect.
    """

    def __init__(self, seconds: float) -> None:
        self._first = self.seconds = seconds

    def note(self, error: BaseException) -> None:
        if was_unanswered(error):
            self.seconds = min(2 * self.seconds, max(self._first, LONGEST_ANSWER_SECONDS))

    def reset(self) -> None:
        self.seconds = self._first


def _until(generator: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """Run the steps of `generator`; raise ReplyTimeout when they take too long.

    The driver resumes it at least ten times a second, whether or not the socket is ready.
    """
    deadline = time.monotonic() + seconds
    try:
        wanted = next(generator)
        while True:
            wanted = generator.send((yield wanted))
            if time.monotonic() >= deadline:
                raise ReplyTimeout(f"PostgreSQL did not answer within {seconds:g} s")
    except StopIteration as end:
        return end.value


class BoundedConnection(psycopg.Connection[Any]):
    """Bounds each call by `answer_seconds`; None leaves the driver's behaviour."""

    answer_seconds: float | None = None
    was_read_only = False  # the server refused a write, even if the caller swallowed the error

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Try the hosts in their order, but first the one that this process reached last."""
        conn = super().connect(conninfo, **nearest_first(options))
        info = conn.info
        remember_reached(options, host=info.host, hostaddr=info.hostaddr, port=info.port)
        return conn

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.answer_seconds is None or args or kwargs:  # the call has its own limit
                return super().wait(gen, *args, **kwargs)
            return super().wait(_until(gen, self.answer_seconds))
        except ReplyTimeout:
            self.pgconn.finish()
            raise
        except psycopg.errors.ReadOnlySqlTransaction:
            self.was_read_only = True
            raise


class AsyncBoundedConnection(psycopg.AsyncConnection[Any]):
    """The same for asyncio."""

    answer_seconds: float | None = None
    was_read_only = False

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        conn = await super().connect(conninfo, **nearest_first(options))
        info = conn.info
        remember_reached(options, host=info.host, hostaddr=info.hostaddr, port=info.port)
        return conn

    async def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.answer_seconds is None or args or kwargs:
                return await super().wait(gen, *args, **kwargs)
            return await super().wait(_until(gen, self.answer_seconds))
        except ReplyTimeout:
            self.pgconn.finish()
            raise
        except psycopg.errors.ReadOnlySqlTransaction:
            self.was_read_only = True
            raise


@contextmanager
def answered_within(
    conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], seconds: float | None
) -> Iterator[None]:
    """Bound the calls inside the block; does nothing on a connection of the user's."""
    if not isinstance(conn, BoundedConnection | AsyncBoundedConnection):
        yield
        return
    before, conn.answer_seconds = conn.answer_seconds, seconds
    try:
        yield
    finally:
        conn.answer_seconds = before
